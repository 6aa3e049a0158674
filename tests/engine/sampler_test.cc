// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "quest/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>

#include "model/tiny_gguf.h"
#include "quest/error.h"

namespace quest::testing {
namespace {

class GreedySampler : public ::testing::TestWithParam<int> {
 protected:
  GreedySampler() {
    TinyModel model;
    model.vocabulary = GetParam();
    file_ = std::make_unique<TemporaryFile>(model);
    tokenizer_ = std::make_unique<Tokenizer>(file_->path());
  }
  std::size_t size() const { return static_cast<std::size_t>(GetParam()); }

  std::unique_ptr<TemporaryFile> file_;
  std::unique_ptr<Tokenizer> tokenizer_;
};

TEST_P(GreedySampler, TakesTheFirstOfTheLargest) {
  Sampler sampler(*tokenizer_, SamplingOptions{});
  std::mt19937 random(5);
  // Few distinct values, so that most maxima are ties.
  std::uniform_int_distribution<int> value(-9, 3);
  std::vector<float> logits(size());
  for (int round = 0; round < 200; ++round) {
    for (float& logit : logits) logit = static_cast<float>(value(random));
    if (round % 2 == 0) logits[random() % logits.size()] = 4;
    const auto expected = std::max_element(logits.begin(), logits.end()) - logits.begin();
    ASSERT_EQ(sampler.sample(logits), expected) << "round " << round;
  }
}

TEST_P(GreedySampler, FindsTheLargestAtEitherEnd) {
  Sampler sampler(*tokenizer_, SamplingOptions{});
  std::vector<float> logits(size(), -std::numeric_limits<float>::infinity());
  EXPECT_EQ(sampler.sample(logits), 0);
  logits.back() = -1e30F;
  EXPECT_EQ(sampler.sample(logits), GetParam() - 1);
  logits.front() = 1;
  EXPECT_EQ(sampler.sample(logits), 0);
}

// libllama's chain, which a penalty brings in, agrees where the penalty has nothing to do.
TEST_P(GreedySampler, AgreesWithLibllama) {
  SamplingOptions options;
  options.repeat_penalty = 1.0001F;
  std::mt19937 random(6);
  std::normal_distribution<float> normal(0, 5);
  std::vector<float> logits(size());
  for (int round = 0; round < 20; ++round) {
    Sampler plain(*tokenizer_, SamplingOptions{});
    Sampler chain(*tokenizer_, options);
    for (float& logit : logits) logit = normal(random);
    ASSERT_EQ(plain.sample(logits), chain.sample(logits)) << "round " << round;
  }
}

TEST_P(GreedySampler, RefusesLogitsOfAnotherSize) {
  Sampler sampler(*tokenizer_, SamplingOptions{});
  EXPECT_THROW(sampler.sample(std::vector<float>(size() + 1)), InvalidArgument);
  EXPECT_THROW(sampler.sample({}), InvalidArgument);
}

INSTANTIATE_TEST_SUITE_P(Vocabularies, GreedySampler, ::testing::Values(320, 321, 383));

}  // namespace
}  // namespace quest::testing
