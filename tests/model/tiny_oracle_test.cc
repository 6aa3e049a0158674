// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
// Full attention in the engine against libllama on tiny random models: every architecture, RoPE
// scaling, head layout and weight type.
#include <gtest/gtest.h>

#include <ostream>

#include "model/engine_reader.h"
#include "model/libllama_oracle.h"
#include "model/random_tokens.h"
#include "model/tiny_gguf.h"

namespace quest::testing {
namespace {

constexpr double kMaxKl = 1e-3;
constexpr std::int32_t kContext = 1024;

Agreement agreement_of(const TemporaryFile& file, const TinyModel& model, KvType kv_type,
                       std::size_t length, const ModelOptions& how = stored_types(),
                       bool flash_attention = false) {
  OracleOptions oracle_options;
  oracle_options.extra_buffers = how.repack;
  oracle_options.kv_type = kv_type;
  oracle_options.context = kContext;
  oracle_options.flash_attention = flash_attention;
  LibllamaOracle oracle(file.path(), oracle_options);
  const std::vector<Token> tokens = random_tokens(model.vocabulary, length, model.seed + 100);
  const std::vector<float> expected = oracle.read(tokens);
  const auto engine = make_engine(file.path(), dense_options(kv_type, kContext), how);
  const SequenceId sequence = engine->cache().create();
  return compare_logits(expected, read(*engine, sequence, tokens), model.vocabulary);
}

Agreement agreement_of(const TinyModel& model, KvType kv_type, std::size_t length) {
  return agreement_of(TemporaryFile(model), model, kv_type, length);
}

void expect_agreement(const Agreement& agreement, double max_kl = kMaxKl) {
  EXPECT_LE(agreement.mean_kl, max_kl);
  EXPECT_GE(agreement.top1, 0.99);
}

struct RopeCase {
  const char* name;
  TinyRope rope;
  float factor;
  std::int32_t original_context;
  float attn_factor;
  float freq_base;
};

void PrintTo(const RopeCase& c, std::ostream* out) { *out << c.name; }

constexpr RopeCase kRopes[] = {
    {"none", TinyRope::kNone, 1, 0, 0, 10000},
    {"none_base_500000", TinyRope::kNone, 1, 0, 0, 500000},
    {"linear_4", TinyRope::kLinear, 4, 0, 0, 10000},
    {"yarn_4", TinyRope::kYarn, 4, 64, 0, 10000},
    {"yarn_8_attn_factor", TinyRope::kYarn, 8, 32, 1.3F, 1000000},
    {"yarn_without_original_context", TinyRope::kYarn, 2, 0, 0, 10000},
    {"linear_attn_factor", TinyRope::kLinear, 2, 0, 0.8F, 10000},
};

using OracleCase = std::tuple<const char*, RopeCase, bool>;

class TinyOracle : public ::testing::TestWithParam<OracleCase> {};

TEST_P(TinyOracle, FullAttentionMatchesLibllamaBeyondTheOriginalContext) {
  const auto& [architecture, rope, tied] = GetParam();
  TinyModel model;
  model.architecture = architecture;
  model.tied = tied;
  model.rope = rope.rope;
  model.rope_factor = rope.factor;
  model.original_context = rope.original_context;
  model.rope_attn_factor = rope.attn_factor;
  model.freq_base = rope.freq_base;
  expect_agreement(agreement_of(model, KvType::kF32, 300));
}

INSTANTIATE_TEST_SUITE_P(Grid, TinyOracle,
                         ::testing::Combine(::testing::Values("llama", "qwen2", "qwen3"),
                                            ::testing::ValuesIn(kRopes), ::testing::Bool()),
                         [](const auto& test) {
                           return std::string(std::get<0>(test.param)) + "_" +
                                  std::get<1>(test.param).name +
                                  (std::get<2>(test.param) ? "_tied" : "_untied");
                         });

TEST(TinyOracleLlama, Llama3FrequencyFactors) {
  TinyModel model;
  model.rope = TinyRope::kLlama3;
  model.rope_factor = 8;
  model.freq_base = 500000;
  for (const bool tied : {false, true}) {
    model.tied = tied;
    expect_agreement(agreement_of(model, KvType::kF32, 300));
  }
}

// The factors must matter, else the test above proves nothing.
TEST(TinyOracleLlama, WithoutItsFrequencyFactorsTheModelIsAnother) {
  TinyModel model;
  model.rope = TinyRope::kLlama3;
  model.rope_factor = 8;
  const TemporaryFile with(model);
  model.rope = TinyRope::kNone;
  const TemporaryFile without(model);
  const std::vector<Token> tokens = random_tokens(model.vocabulary, 300, 5);
  LibllamaOracle a(with.path());
  LibllamaOracle b(without.path());
  EXPECT_GT(compare_logits(a.read(tokens), b.read(tokens), model.vocabulary).mean_kl, 10 * kMaxKl);
}

TEST(TinyOracleLlama, EveryOptionalBias) {
  TinyModel model;
  model.qkv_bias = true;
  model.output_bias = true;
  model.feed_forward_bias = true;
  expect_agreement(agreement_of(model, KvType::kF32, 200));
  model.qkv_bias = false;
  expect_agreement(agreement_of(model, KvType::kF32, 200));
  model.feed_forward_bias = false;
  expect_agreement(agreement_of(model, KvType::kF32, 200));
}

TEST(TinyOracleHeads, EveryHeadSizeAndGroup) {
  struct Heads {
    std::int32_t heads, kv_heads, head_dim;
  };
  for (const Heads h : {Heads{4, 4, 64}, Heads{4, 1, 80}, Heads{6, 2, 96}, Heads{9, 3, 64},
                        Heads{2, 1, 128}, Heads{2, 2, 256}, Heads{8, 1, 64}}) {
    SCOPED_TRACE(::testing::Message()
                 << h.heads << "/" << h.kv_heads << " heads of " << h.head_dim);
    TinyModel model;
    model.heads = h.heads;
    model.kv_heads = h.kv_heads;
    model.head_dim = h.head_dim;
    model.embedding = h.heads * h.head_dim;
    expect_agreement(agreement_of(model, KvType::kF32, 100));
    model.architecture = "qwen3";
    model.embedding = 256;
    expect_agreement(agreement_of(model, KvType::kF32, 100));
  }
}

TEST(TinyOracleCache, HalfPrecisionCaches) {
  for (const char* architecture : {"llama", "qwen2", "qwen3"}) {
    for (const bool flash_attention : {false, true}) {
      TinyModel model;
      model.architecture = architecture;
      SCOPED_TRACE(::testing::Message() << architecture << " flash " << flash_attention);
      expect_agreement(agreement_of(TemporaryFile(model), model, KvType::kF16, 300, stored_types(),
                                    flash_attention));
    }
  }
}

TEST(TinyOracleCache, DecodingTokenByTokenMatches) {
  TinyModel model;
  model.architecture = "qwen3";
  const TemporaryFile file(model);
  const std::vector<Token> tokens = random_tokens(model.vocabulary, 150, 3);
  OracleOptions options;
  options.kv_type = KvType::kF32;
  options.context = kContext;
  LibllamaOracle oracle(file.path(), options);
  const std::vector<float> expected = oracle.read(tokens);
  const auto engine = make_engine(file.path(), dense_options());
  ReadOptions one_by_one;
  one_by_one.chunk = 1;
  const SequenceId sequence = engine->cache().create();
  expect_agreement(
      compare_logits(expected, read(*engine, sequence, tokens, one_by_one), model.vocabulary));
}

class TinyOracleWeights : public ::testing::TestWithParam<ggml_type> {};

TEST_P(TinyOracleWeights, LoadAndMatchLibllamaAndStayCloseWhenReencoded) {
  TinyModel model;
  model.layers = 1;
  model.weights = GetParam();
  const TemporaryFile file(model);
  expect_agreement(agreement_of(file, model, KvType::kF32, 100));
  ModelOptions as_mapped = stored_types();
  as_mapped.repack = false;
  expect_agreement(agreement_of(file, model, KvType::kF32, 100, as_mapped));
  EXPECT_LE(agreement_of(file, model, KvType::kF32, 100, reencoded_types()).mean_kl, 1e-2);
}

INSTANTIATE_TEST_SUITE_P(Types, TinyOracleWeights,
                         ::testing::Values(GGML_TYPE_F32, GGML_TYPE_F16, GGML_TYPE_BF16,
                                           GGML_TYPE_Q4_0, GGML_TYPE_Q4_1, GGML_TYPE_Q5_0,
                                           GGML_TYPE_Q5_1, GGML_TYPE_Q8_0, GGML_TYPE_Q2_K,
                                           GGML_TYPE_Q3_K, GGML_TYPE_Q4_K, GGML_TYPE_Q5_K,
                                           GGML_TYPE_Q6_K, GGML_TYPE_IQ1_S, GGML_TYPE_IQ2_XXS,
                                           GGML_TYPE_IQ2_XS, GGML_TYPE_IQ2_S, GGML_TYPE_IQ3_XXS,
                                           GGML_TYPE_IQ3_S, GGML_TYPE_IQ4_NL, GGML_TYPE_IQ4_XS,
                                           GGML_TYPE_TQ1_0, GGML_TYPE_TQ2_0, GGML_TYPE_MXFP4),
                         [](const auto& test) { return std::string(ggml_type_name(test.param)); });

}  // namespace
}  // namespace quest::testing
