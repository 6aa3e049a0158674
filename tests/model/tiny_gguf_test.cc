// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
// The oracle tests are worth what their tiny models are worth: libllama must accept them, and their
// predictions must depend on what attention reads.
#include "model/tiny_gguf.h"

#include <gtest/gtest.h>

#include <cmath>

#include "model/gguf_check.h"
#include "model/libllama_oracle.h"
#include "model/random_tokens.h"

namespace quest::testing {
namespace {

class TinyGguf : public ::testing::TestWithParam<const char*> {};

TEST_P(TinyGguf, PassesTheCheckAndLoadsInLibllama) {
  for (const TinyVocabulary tokens : {TinyVocabulary::kSpm, TinyVocabulary::kBytePairs}) {
    for (const bool special : {true, false}) {
      TinyModel model;
      model.architecture = GetParam();
      model.tokens = tokens;
      model.special_tokens = special;
      const TemporaryFile file(model);
      EXPECT_NO_THROW(check_gguf(file.path()));
      EXPECT_EQ(LibllamaOracle(file.path()).vocabulary(), model.vocabulary);
    }
  }
}

TEST_P(TinyGguf, LogitsAreNeitherUniformNorCertain) {
  for (const bool tied : {true, false}) {
    TinyModel model;
    model.architecture = GetParam();
    model.tied = tied;
    const TemporaryFile file(model);
    LibllamaOracle oracle(file.path());
    const std::vector<Token> tokens = random_tokens(model.vocabulary, 200, 7);
    const double entropy = mean_entropy(oracle.read(tokens), model.vocabulary);
    EXPECT_GT(entropy, 0.5) << "tied " << tied;
    EXPECT_LT(entropy, std::log(model.vocabulary) - 1) << "tied " << tied;
  }
}

TEST_P(TinyGguf, LastLogitsDependOnTheOrderOfTheFirstTokens) {
  TinyModel model;
  model.architecture = GetParam();
  const TemporaryFile file(model);
  LibllamaOracle oracle(file.path());
  std::vector<Token> tokens = random_tokens(model.vocabulary, 200, 7);
  const std::vector<float> before = oracle.read(tokens, 199);
  std::swap(tokens[3], tokens[11]);
  oracle.clear();
  const std::vector<float> after = oracle.read(tokens, 199);
  // Well above the bound of 1e-3 that the engine has to keep.
  EXPECT_GT(compare_logits(before, after, model.vocabulary).mean_kl, 5e-3);
}

INSTANTIATE_TEST_SUITE_P(Architectures, TinyGguf, ::testing::Values("llama", "qwen2", "qwen3"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace quest::testing
