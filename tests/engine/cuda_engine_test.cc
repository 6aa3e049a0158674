// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
// The engine on the emulated device: the whole way from tokens to tokens, as on the CPU.
#include <gtest/gtest.h>

#include "attention/cuda/cuda_backend.h"
#include "cuda/emulator/emulated_device.h"
#include "model/engine_reader.h"
#include "model/libllama_oracle.h"
#include "model/random_tokens.h"
#include "model/tiny_gguf.h"

namespace quest::testing {
namespace {

TinyModel small_model() {
  TinyModel model;
  model.layers = 3;
  return model;
}

/// Most of a 200-token context is left out.
EngineOptions options_of(GroupMode mode, bool emulated) {
  EngineOptions options;
  options.context = 512;
  options.page_size = 8;
  options.kv_type = KvType::kF16;
  options.summary_type = SummaryType::kQ8;
  options.threads = 2;
  options.chunk = 96;
  options.policy.dense = false;
  options.policy.budget = 48;
  options.policy.sinks = 4;
  options.policy.window = 12;
  options.policy.dense_layers = 1;
  options.policy.group_mode = mode;
  options.policy.beta = 0.5F;
  options.policy.crossover = 1;
  if (emulated) {
    options.attention = [](KvCache& cache, const SelectionPolicy& policy) {
      return cuda::make_backend(cache, policy, emulator::make_device());
    };
  }
  return options;
}

/// A conversation: prefill, an answer, then two more, one on a fork that reads a question first.
std::vector<Token> converse(Engine& engine, const std::vector<Token>& prompt) {
  GenerateOptions greedy;
  greedy.max_tokens = 10;
  greedy.ignore_end = true;
  Session session(engine);
  session.prefill(prompt);
  std::vector<Token> tokens = session.generate(greedy).tokens;
  Session branch = session.fork();
  branch.prefill({prompt.data(), 7});
  for (Session* each : {&branch, &session}) {
    const std::vector<Token> more = each->generate(greedy).tokens;
    tokens.insert(tokens.end(), more.begin(), more.end());
  }
  return tokens;
}

TEST(CudaEngine, EmulatedDevice_GivesTheCpusTokens) {
  const TemporaryFile file(small_model());
  const std::vector<Token> prompt = random_tokens(small_model().vocabulary, 200, 9);
  for (const GroupMode mode :
       {GroupMode::kGroupMean, GroupMode::kPerHead, GroupMode::kGroupSoftmax}) {
    const auto cpu = make_engine(file.path(), options_of(mode, false));
    const auto gpu = make_engine(file.path(), options_of(mode, true));
    EXPECT_EQ(gpu->attention().name(), "cuda");
    EXPECT_EQ(gpu->attention().device(), "emulator");
    EXPECT_EQ(cpu->attention().device(), "cpu");
    EXPECT_EQ(converse(*gpu, prompt), converse(*cpu, prompt));
    const AttentionCounters& got = gpu->counters().attention;
    const AttentionCounters& want = cpu->counters().attention;
    EXPECT_EQ(got.bytes_read(), want.bytes_read());
    EXPECT_EQ(got.sparse_lists, want.sparse_lists);
    EXPECT_GT(got.sparse_lists, 0);
    EXPECT_LT(got.bytes_read(), got.dense_bytes);
    EXPECT_GT(got.seconds.attend, 0);
  }
}

TEST(CudaEngine, EmulatedDevice_LogitsAgreeWithTheCpus) {
  const TemporaryFile file(small_model());
  const std::vector<Token> tokens = random_tokens(small_model().vocabulary, 150, 10);
  std::vector<float> logits[2];
  for (const bool emulated : {true, false}) {
    const auto engine = make_engine(file.path(), options_of(GroupMode::kGroupMean, emulated));
    const SequenceId id = engine->cache().create();
    ReadOptions read_options;
    read_options.chunk = 60;
    read_options.sparse = true;
    read_options.first = 100;
    logits[emulated ? 0 : 1] = read(*engine, id, tokens, read_options);
  }
  const Agreement agreement = compare_logits(logits[0], logits[1], small_model().vocabulary);
  EXPECT_LT(agreement.relative, 1e-3);
}

}  // namespace
}  // namespace quest::testing
