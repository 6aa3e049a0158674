// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
// What `quest ask` does with no flag but --device cuda, on the emulated device: the program's own
// settings for the packaged model, its calibrated profile, must serve there.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "attention/cuda/cuda_backend.h"
#include "cli/packaged_model.h"
#include "common_options.h"
#include "cuda/emulator/emulated_device.h"
#include "quest/engine.h"

namespace quest::testing {
namespace {

/// Reads a document, then a question with four times the budget, then answers.
std::vector<Token> ask(Engine& engine, const std::vector<Token>& document,
                       const std::vector<Token>& question) {
  const SelectionPolicy policy = engine.options().policy;
  Session session(engine);
  session.prefill(document);
  engine.set_policy(policy.with_budget(4 * policy.budget, engine.options().page_size));
  session.feed(question);
  engine.set_policy(policy);
  GenerateOptions greedy;
  greedy.max_tokens = 8;
  greedy.sampling.temperature = 0;
  greedy.ignore_end = true;
  return session.generate(greedy).tokens;
}

using CudaProfile = PackagedModelTest;

TEST_F(CudaProfile, PackagedModelsDefaults_GiveTheCpusTokens) {
  EngineOptions settings = cli::engine_options({});
  ASSERT_EQ(settings.policy.group_mode, GroupMode::kGroupSoftmax);
  ASSERT_FALSE(settings.policy.budget_table.empty());
  ASSERT_FALSE(settings.policy.calibrated.empty());
  ASSERT_EQ(settings.page_size, 8);
  ASSERT_EQ(settings.summary_type, SummaryType::kQ4);
  ASSERT_GT(settings.policy.value_threshold, 0);
  settings.policy.value_threshold = 0;  // as engine_options does for --device cuda
  settings.context = 512;
  settings.threads = 2;

  const auto model = cli::load_model({});
  const std::vector<Token> document =
      model->tokenizer().tokenize(pass_key_text("48213", 0.4, 24), true, false);
  const std::vector<Token> question = model->tokenizer().tokenize(kPassKeyQuestion, false, false);
  ASSERT_GT(document.size(), 300U);
  Engine cpu(model, settings);
  const std::vector<Token> want = ask(cpu, document, question);
  const AttentionCounters expected = cpu.counters().attention;
  ASSERT_GT(expected.sparse_lists, 0);

  settings.attention = [](KvCache& cache, const SelectionPolicy& policy) {
    return cuda::make_backend(cache, policy, emulator::make_device());
  };
  Engine gpu(model, settings);
  EXPECT_EQ(ask(gpu, document, question), want);
  EXPECT_EQ(gpu.attention().device(), "emulator");
  EXPECT_EQ(gpu.counters().attention.sparse_lists, expected.sparse_lists);
  EXPECT_EQ(gpu.counters().attention.bytes_read(), expected.bytes_read());
}

}  // namespace
}  // namespace quest::testing
