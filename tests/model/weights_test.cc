// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
// Where weights are placed, which of them are merged, and that neither changes a logit.
#include "model/weights.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <set>
#include <string>

#include "model/engine_reader.h"
#include "model/libllama_oracle.h"
#include "model/random_tokens.h"
#include "model/tiny_gguf.h"
#include "model/weight_placement.h"

namespace quest::testing {
namespace {

/// Whether ggml has a layout of its own on this machine for every matrix of the tiny model.
bool has_layout(ggml_type type) {
  ggml_init_params params{};
  params.mem_size = ggml_tensor_overhead();
  params.no_alloc = true;
  ggml_context_ptr context(ggml_init(params));
  const TinyModel model;
  return matrix_buffer_type(ggml_new_tensor_2d(context.get(), type, model.embedding,
                                               model.kv_heads * model.head_dim)) != nullptr;
}

/// Logits of a prompt in one step, then of tokens one by one.
std::vector<float> prompt_and_decode(const std::string& path, const ModelOptions& how) {
  const auto engine = make_engine(path, dense_options(), how);
  const std::vector<Token> tokens = random_tokens(TinyModel().vocabulary, 60, 7);
  const SequenceId sequence = engine->cache().create();
  std::vector<float> logits = read(*engine, sequence, std::span(tokens).first(50));
  ReadOptions one_by_one;
  one_by_one.chunk = 1;
  const std::vector<float> more =
      read(*engine, sequence, std::span(tokens).subspan(50), one_by_one);
  logits.insert(logits.end(), more.begin(), more.end());
  return logits;
}

ModelOptions separate() {
  ModelOptions options = stored_types();
  options.merge = false;
  return options;
}

void expect_merging_changes_nothing(const TinyModel& model) {
  const TemporaryFile file(model);
  EXPECT_EQ(prompt_and_decode(file.path(), stored_types()),
            prompt_and_decode(file.path(), separate()));
}

class MergedWeights : public ::testing::TestWithParam<ggml_type> {
 protected:
  TinyModel model() const {
    TinyModel model;
    model.weights = GetParam();
    return model;
  }
};

TEST_P(MergedWeights, GiveTheSameLogitsAsSeparateOnes) {
  for (const char* architecture : {"llama", "qwen2", "qwen3"}) {
    SCOPED_TRACE(architecture);
    TinyModel tiny = model();
    tiny.architecture = architecture;
    expect_merging_changes_nothing(tiny);
  }
}

TEST_P(MergedWeights, KeepTheirBiases) {
  TinyModel tiny = model();
  tiny.qkv_bias = true;
  tiny.feed_forward_bias = true;
  expect_merging_changes_nothing(tiny);
}

TEST_P(MergedWeights, AreThoseThatAreCopiedAnyway) {
  const TemporaryFile file(model());
  const ModelWeights weights(file.path(), stored_types());
  const ModelWeights apart(file.path(), separate());
  ModelOptions mapped_options = stored_types();
  mapped_options.repack = false;
  const ModelWeights mapped(file.path(), mapped_options);
  for (std::size_t i = 0; i < weights.layers.size(); ++i) {
    EXPECT_EQ(weights.layers[i].qkv.is_merged(), has_layout(GetParam()));
    EXPECT_EQ(weights.layers[i].gate_up.is_merged(), has_layout(GetParam()));
    EXPECT_FALSE(apart.layers[i].qkv.is_merged());
    EXPECT_FALSE(mapped.layers[i].qkv.is_merged());
    for (const Matrix& matrix : mapped.layers[i].qkv.separate) {
      EXPECT_EQ(matrix.one_row->buffer, mapped.buffers.front().get());
    }
  }
  // The same weights, in the same number of bytes.
  EXPECT_EQ(weights.info.weight_bytes, apart.info.weight_bytes);
  EXPECT_EQ(weights.info.parameters, mapped.info.parameters);
}

INSTANTIATE_TEST_SUITE_P(Types, MergedWeights,
                         ::testing::Values(GGML_TYPE_F32, GGML_TYPE_F16, GGML_TYPE_Q4_0,
                                           GGML_TYPE_Q4_1, GGML_TYPE_Q8_0, GGML_TYPE_Q4_K),
                         [](const auto& test) { return std::string(ggml_type_name(test.param)); });

TEST(Weights, MatricesOfDifferentTypesStaySeparate) {
  TinyModel tiny;
  tiny.type_of = [](const std::string& name) {
    return name.find("attn_v") != name.npos ? GGML_TYPE_Q8_0 : GGML_TYPE_Q4_0;
  };
  const TemporaryFile file(tiny);
  const ModelWeights weights(file.path(), stored_types());
  EXPECT_FALSE(weights.layers[0].qkv.is_merged());
  EXPECT_EQ(weights.layers[0].gate_up.is_merged(), has_layout(GGML_TYPE_Q4_0));
  EXPECT_EQ(weights.info.weight_types, "q4_0, q8_0");
  EXPECT_EQ(prompt_and_decode(file.path(), stored_types()),
            prompt_and_decode(file.path(), separate()));
}

TEST(Weights, MatricesOfWhichOnlySomeHaveABiasStaySeparate) {
  TinyModel tiny;
  tiny.weights = GGML_TYPE_Q4_0;
  tiny.qkv_bias = true;
  tiny.omit = [](const std::string& name) { return name.find("attn_k.bias") != name.npos; };
  const TemporaryFile file(tiny);
  const ModelWeights weights(file.path(), stored_types());
  EXPECT_FALSE(weights.layers[0].qkv.is_merged());
  const std::vector<Token> tokens = random_tokens(tiny.vocabulary, 80, 3);
  OracleOptions options;
  options.kv_type = KvType::kF32;
  options.context = 1024;
  options.extra_buffers = true;
  LibllamaOracle oracle(file.path(), options);
  const auto engine = make_engine(file.path(), dense_options());
  const Agreement agreement = compare_logits(
      oracle.read(tokens), read(*engine, engine->cache().create(), tokens), tiny.vocabulary);
  EXPECT_LE(agreement.mean_kl, 1e-3);
}

TEST(Weights, SlowTypesAreReencodedUnlessTheyHaveALayout) {
  TinyModel tiny;
  for (const ggml_type type : {GGML_TYPE_Q4_1, GGML_TYPE_Q5_1}) {
    SCOPED_TRACE(ggml_type_name(type));
    tiny.type_of = [type](const std::string& name) {
      return name == "output.weight" || name == "token_embd.weight" ? GGML_TYPE_Q8_0 : type;
    };
    const TemporaryFile file(tiny);
    ModelOptions options = reencoded_types();
    EXPECT_EQ(Model::load(file.path(), options)->info().compute_types, "q8_0");
    options.reencode = false;
    const std::string stored = std::string(ggml_type_name(type)) + ", q8_0";
    EXPECT_EQ(Model::load(file.path(), options)->info().compute_types, stored);
    options = ModelOptions();
    EXPECT_EQ(Model::load(file.path(), options)->info().compute_types,
              has_layout(type) ? stored : "q8_0");
  }
}

TEST(Weights, BytesAreThoseThatAreComputedWith) {
  TinyModel tiny;
  tiny.tied = true;
  tiny.weights = GGML_TYPE_Q4_1;
  const TemporaryFile file(tiny);
  const std::int64_t table = std::int64_t{tiny.vocabulary} * tiny.embedding;
  ModelOptions options = stored_types();
  options.repack = false;
  const auto mapped = Model::load(file.path(), options);
  const std::int64_t vectors = std::int64_t{2 * tiny.layers + 1} * tiny.embedding;
  const std::int64_t matrices = mapped->info().parameters - vectors;  // the table among them
  const auto q4_1 = [](std::int64_t count) { return count / 32 * 20; };
  const auto q8_0 = [](std::int64_t count) { return count / 32 * 34; };
  EXPECT_EQ(mapped->info().weight_bytes, 4 * vectors + q4_1(matrices));
  // Re-encoded for many rows: all but the table, which is output too and stays as stored.
  EXPECT_EQ(Model::load(file.path(), reencoded_types())->info().weight_bytes,
            4 * vectors + q4_1(matrices) + q8_0(matrices - table));
  // Copied into a layout: the table alone is used as it lies in the file as well.
  if (has_layout(GGML_TYPE_Q4_1)) {
    EXPECT_EQ(Model::load(file.path(), stored_types())->info().weight_bytes,
              4 * vectors + q4_1(matrices) + q4_1(table));
  }
}

TEST(Weights, CopiesShareOnePieceOfMemoryForEachLayout) {
  TinyModel tiny;
  tiny.weights = GGML_TYPE_Q4_1;
  tiny.qkv_bias = true;
  const TemporaryFile file(tiny);
  for (const ModelOptions& options : {ModelOptions(), reencoded_types()}) {
    const ModelWeights weights(file.path(), options);
    std::set<ggml_backend_buffer_type_t> types;
    for (const ggml_backend_buffer_ptr& buffer : weights.buffers) {
      // The mapping's type is that of plain memory, too.
      if (buffer == weights.buffers.front()) continue;
      EXPECT_TRUE(types.insert(ggml_backend_buffer_get_type(buffer.get())).second);
    }
    EXPECT_GE(types.size(), 1U);
  }
}

}  // namespace
}  // namespace quest::testing
