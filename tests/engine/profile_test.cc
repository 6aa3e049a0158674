// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
// The profile of a step counts the graph's operations by what they are for; threads, idle engines.
#include "quest/profile.h"

#include <gtest/gtest.h>

#include <chrono>
#include <ctime>
#include <thread>

#include "model/engine_reader.h"
#include "model/libllama_oracle.h"
#include "model/random_tokens.h"
#include "model/tiny_gguf.h"
#include "model/weights.h"

namespace quest::testing {
namespace {

constexpr std::int64_t kLayers = 3;

TinyModel tiny(const char* architecture, ggml_type type) {
  TinyModel model;
  model.architecture = architecture;
  model.layers = kLayers;
  model.weights = type;
  return model;
}

/// Reads a prompt, then profiles `steps` steps of one row.
StepProfile profile_of(Engine& engine, std::int64_t steps) {
  const std::vector<Token> tokens = random_tokens(TinyModel().vocabulary, 40, 11);
  const SequenceId sequence = engine.cache().create();
  read(engine, sequence, std::span(tokens).first(20));
  engine.set_profiling(true);
  ReadOptions one_by_one;
  one_by_one.chunk = 1;
  read(engine, sequence, std::span(tokens).subspan(20, static_cast<std::size_t>(steps)),
       one_by_one);
  engine.set_profiling(false);
  engine.cache().release(sequence);
  return engine.profile();
}

TEST(StepProfile, CountsOperationsByKind) {
  for (const ggml_type type : {GGML_TYPE_F32, GGML_TYPE_Q4_0}) {
    for (const char* architecture : {"llama", "qwen2", "qwen3"}) {
      SCOPED_TRACE(::testing::Message() << architecture << " " << ggml_type_name(type));
      const TemporaryFile file(tiny(architecture, type));
      const auto engine = make_engine(file.path(), dense_options());
      const bool merged = engine->model().weights().layers[0].qkv.is_merged();
      const bool head_norms = std::string(architecture) == "qwen3";
      const bool biases = std::string(architecture) == "qwen2";
      constexpr std::int64_t kSteps = 4;
      const StepProfile profile = profile_of(*engine, kSteps);
      EXPECT_EQ(profile.steps, kSteps);
      const auto count = [&](Operation operation) {
        EXPECT_GT(profile.of(operation).seconds, 0) << name_of(operation);
        return profile.of(operation).count / kSteps;
      };
      EXPECT_EQ(count(Operation::kStart), 1);
      EXPECT_EQ(count(Operation::kNorm), (head_norms ? 4 : 2) * kLayers + 1);
      EXPECT_EQ(count(Operation::kQkv), (merged ? 1 : 3) * kLayers);
      EXPECT_EQ(count(Operation::kRope), (merged && !head_norms ? 1 : 2) * kLayers);
      EXPECT_EQ(count(Operation::kAttention), kLayers);
      EXPECT_EQ(count(Operation::kOut), kLayers);
      EXPECT_EQ(count(Operation::kGateUp), (merged ? 1 : 2) * kLayers);
      EXPECT_EQ(count(Operation::kActivation), kLayers);
      EXPECT_EQ(count(Operation::kDown), kLayers);
      EXPECT_EQ(count(Operation::kAdd), (2 + (biases ? (merged ? 1 : 3) : 0)) * kLayers);
      EXPECT_EQ(count(Operation::kHead), 1);
      EXPECT_LE(profile.graph_seconds(), profile.step_seconds);
      EXPECT_GT(profile.empty_operation_seconds, 0);
    }
  }
}

TEST(StepProfile, CountsTheBytesOfTheMatrices) {
  const TinyModel model = tiny("llama", GGML_TYPE_F32);
  const TemporaryFile file(model);
  const auto engine = make_engine(file.path(), dense_options());
  const StepProfile profile = profile_of(*engine, 1);
  const std::int64_t dim = model.embedding;
  const std::int64_t wide = model.heads * model.head_dim;
  const std::int64_t narrow = model.kv_heads * model.head_dim;
  EXPECT_EQ(profile.of(Operation::kQkv).weight_bytes, 4 * kLayers * dim * (wide + 2 * narrow));
  EXPECT_EQ(profile.of(Operation::kOut).weight_bytes, 4 * kLayers * dim * wide);
  EXPECT_EQ(profile.of(Operation::kGateUp).weight_bytes,
            4 * kLayers * 2 * dim * model.feed_forward);
  EXPECT_EQ(profile.of(Operation::kDown).weight_bytes, 4 * kLayers * dim * model.feed_forward);
  EXPECT_EQ(profile.of(Operation::kHead).weight_bytes, 4 * dim * model.vocabulary);
  EXPECT_EQ(profile.of(Operation::kNorm).weight_bytes, 0);
  EXPECT_EQ(profile.of(Operation::kHead).flops, 2.0 * static_cast<double>(dim * model.vocabulary));
}

TEST(StepProfile, IsOffByDefaultAndChangesNoLogit) {
  const TinyModel model = tiny("llama", GGML_TYPE_Q4_0);
  const TemporaryFile file(model);
  const auto engine = make_engine(file.path(), dense_options());
  const std::vector<Token> tokens = random_tokens(model.vocabulary, 30, 2);
  const std::vector<float> plain = read(*engine, engine->cache().create(), tokens);
  EXPECT_EQ(engine->profile().steps, 0);
  engine->set_profiling(true);
  EXPECT_EQ(read(*engine, engine->cache().create(), tokens), plain);
  EXPECT_EQ(engine->profile().steps, 1);
  engine->reset_counters();
  EXPECT_EQ(engine->profile().steps, 0);
  EXPECT_EQ(engine->profile().graph_operations(), 0);
  engine->set_profiling(false);
  EXPECT_EQ(read(*engine, engine->cache().create(), tokens), plain);
  EXPECT_EQ(engine->profile().steps, 0);
}

TEST(EngineThreads, OneToFourGiveTheSameLogits) {
  for (const ggml_type type : {GGML_TYPE_F32, GGML_TYPE_Q4_0, GGML_TYPE_Q4_1}) {
    SCOPED_TRACE(ggml_type_name(type));
    const TinyModel model = tiny("llama", type);
    const TemporaryFile file(model);
    const std::vector<Token> tokens = random_tokens(model.vocabulary, 40, 4);
    std::vector<float> expected;
    for (const int threads : {1, 2, 3, 4}) {
      EngineOptions options = dense_options();
      options.threads = threads;
      const auto engine = make_engine(file.path(), options);
      const SequenceId sequence = engine->cache().create();
      std::vector<float> logits = read(*engine, sequence, std::span(tokens).first(30));
      ReadOptions one_by_one;
      one_by_one.chunk = 1;
      const std::vector<float> more =
          read(*engine, sequence, std::span(tokens).subspan(30), one_by_one);
      logits.insert(logits.end(), more.begin(), more.end());
      if (threads == 1) expected = logits;
      EXPECT_LE(compare_logits(expected, logits, model.vocabulary).relative, 1e-3)
          << threads << " threads";
    }
  }
}

double process_cpu_seconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// Threads may poll for the next step for a while. CPU time is counted, not speed: a thread that
// went on polling would use as much as has passed.
TEST(EngineThreads, SleepWhenTheEngineIsIdle) {
  const TemporaryFile file(tiny("llama", GGML_TYPE_F32));
  const auto engine = make_engine(file.path(), dense_options());
  const std::vector<Token> tokens = random_tokens(TinyModel().vocabulary, 40, 4);
  read(*engine, engine->cache().create(), tokens);
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  const double before = process_cpu_seconds();
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  EXPECT_LT(process_cpu_seconds() - before, 0.25);
}

}  // namespace
}  // namespace quest::testing
