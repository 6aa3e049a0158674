// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "attention/partial.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

namespace quest {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// A partial that owns its output vector.
struct Partial {
  explicit Partial(std::size_t head_dim) : o(head_dim, std::nanf("")) { state.o = o; }
  Partial(Partial&& other) noexcept : o(std::move(other.o)), state(other.state) { state.o = o; }
  std::vector<float> o;
  PartialAttention state;
};

/// Attention over the given tokens, straight from the definition; one value a token.
Partial attend(const std::vector<float>& logits, const std::vector<float>& values) {
  Partial partial(1);
  if (logits.empty()) return partial;
  partial.state.max = *std::max_element(logits.begin(), logits.end());
  partial.o[0] = 0;
  for (std::size_t t = 0; t < logits.size(); ++t) {
    const float weight = std::exp(logits[t] - partial.state.max);
    partial.state.sum += weight;
    partial.o[0] += weight * values[t];
  }
  return partial;
}

float result(const Partial& partial) {
  float out = -99;
  finish(partial.state, &out);
  return out;
}

TEST(PartialAttention, TwoEmptyStatesMergeIntoAnEmptyOne) {
  Partial a(2);
  const Partial b(2);
  merge(a.state, b.state);
  EXPECT_TRUE(a.state.empty());
  EXPECT_EQ(a.state.sum, 0);
  EXPECT_EQ(a.state.log_sum_exp(), -kInfinity);
  float out[2] = {7, 7};
  finish(a.state, out);
  EXPECT_EQ(out[0], 0);
  EXPECT_EQ(out[1], 0);
}

TEST(PartialAttention, EmptyStateChangesNothingOnEitherSide) {
  Partial left = attend({1, 2}, {10, 20});
  const float expected = result(left);
  const float lse = left.state.log_sum_exp();
  merge(left.state, Partial(1).state);
  EXPECT_EQ(result(left), expected);
  Partial empty(1);  // its output is NaN until something is merged in
  merge(empty.state, left.state);
  EXPECT_EQ(result(empty), expected);
  EXPECT_EQ(empty.state.log_sum_exp(), lse);
}

TEST(PartialAttention, MergeEqualsOneSoftmax) {
  // Weights 1 : 3 : 4 of values 8, 16, 24.
  Partial left = attend({std::log(1.0F)}, {8});
  merge(left.state, attend({std::log(3.0F), std::log(4.0F)}, {16, 24}).state);
  EXPECT_NEAR(result(left), (8.0 + 3 * 16 + 4 * 24) / 8, 1e-5);
  EXPECT_NEAR(left.state.log_sum_exp(), std::log(8.0), 1e-6);
}

TEST(PartialAttention, VeryNegativeLogitsKeepTheirWeights) {
  Partial left = attend({-1e6F}, {2});
  merge(left.state, attend({-1e6F}, {4}).state);
  EXPECT_EQ(result(left), 3);
  EXPECT_NEAR(left.state.log_sum_exp(), -1e6, 1);
}

TEST(PartialAttention, FarApartMaximaDoNotOverflow) {
  Partial low = attend({-3e38F}, {2});
  merge(low.state, attend({3e38F}, {4}).state);
  EXPECT_EQ(result(low), 4);
}

RC_GTEST_PROP(PartialAttention, AnySplitInAnyOrderGivesTheWhole, ()) {
  const auto count = *rc::gen::inRange<std::size_t>(1, 60);
  std::mt19937 random(*rc::gen::arbitrary<std::uint32_t>());
  std::uniform_real_distribution<float> logit(-30.0F, 30.0F);
  std::uniform_real_distribution<float> value(-5.0F, 5.0F);
  std::vector<float> logits(count);
  std::vector<float> values(count);
  for (std::size_t t = 0; t < count; ++t) {
    logits[t] = logit(random);
    values[t] = value(random);
  }

  const std::size_t num_splits = 1 + random() % 6;
  std::vector<std::vector<float>> split_logits(num_splits);
  std::vector<std::vector<float>> split_values(num_splits);
  for (std::size_t t = 0; t < count; ++t) {
    const std::size_t s = random() % num_splits;  // some splits stay empty
    split_logits[s].push_back(logits[t]);
    split_values[s].push_back(values[t]);
  }
  Partial merged(1);
  for (std::size_t s = 0; s < num_splits; ++s) {
    merge(merged.state, attend(split_logits[s], split_values[s]).state);
  }
  const Partial whole = attend(logits, values);
  RC_ASSERT(std::abs(result(merged) - result(whole)) <= 1e-4F);
  RC_ASSERT(std::abs(merged.state.log_sum_exp() - whole.state.log_sum_exp()) <= 1e-4F);
}

}  // namespace
}  // namespace quest
