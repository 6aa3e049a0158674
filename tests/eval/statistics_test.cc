// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "quest/eval/statistics.h"

#include <gtest/gtest.h>

#include <cmath>

#include "eval/next_token.h"

namespace quest::eval {
namespace {

TEST(StudentQuantile, MatchesTheTable) {
  EXPECT_NEAR(student_quantile(0.975, 1), 12.7062, 1e-4);
  EXPECT_NEAR(student_quantile(0.975, 2), 4.30265, 1e-5);
  EXPECT_NEAR(student_quantile(0.975, 9), 2.26216, 1e-5);
  EXPECT_NEAR(student_quantile(0.95, 10), 1.81246, 1e-5);
  EXPECT_NEAR(student_quantile(0.975, 1000), 1.96234, 1e-5);
}

TEST(Median, IsTheMiddleValueOrTheMeanOfTheMiddleTwo) {
  EXPECT_EQ(median({}), 0);
  EXPECT_EQ(median({9, -1, 4}), 4);
  EXPECT_EQ(median({9, 2, 4, 5}), 4.5);
}

TEST(MeanInterval, RunsOfOneAreThePlainTInterval) {
  const std::vector<double> values[] = {{1, 2, 3, 4}};
  const auto interval = mean_interval(values, 1);
  ASSERT_TRUE(interval);
  const double half = 3.18245 * std::sqrt(5.0 / 3 / 4);  // t of 3 degrees; variance 5/3
  EXPECT_NEAR(interval->low, 2.5 - half, 1e-4);
  EXPECT_NEAR(interval->high, 2.5 + half, 1e-4);
}

TEST(MeanInterval, DependentNeighboursCountAsOneRun) {
  // Each value twice: runs of two give what the single values would.
  const std::vector<double> twice[] = {{1, 1, 2, 2}, {3, 3, 4, 4}};
  const std::vector<double> once[] = {{1, 2, 3, 4}};
  const auto runs = mean_interval(twice, 2);
  const auto plain = mean_interval(once, 1);
  ASSERT_TRUE(runs && plain);
  EXPECT_NEAR(runs->low, plain->low, 1e-9);
  EXPECT_NEAR(runs->high, plain->high, 1e-9);
}

TEST(MeanInterval, OneRunSaysNothing) {
  const std::vector<double> values[] = {{1, 2, 3}};
  EXPECT_FALSE(mean_interval(values, 16));
  EXPECT_FALSE(mean_interval({}, 16));
}

TEST(MeanInterval, EqualDifferencesHaveNoWidth) {
  const std::vector<double> values[] = {std::vector<double>(64, 0.25)};
  const auto interval = mean_interval(values, 16);
  ASSERT_TRUE(interval);
  EXPECT_DOUBLE_EQ(interval->low, 0.25);
  EXPECT_DOUBLE_EQ(interval->high, 0.25);
}

TEST(NextToken, LikelihoodAndDivergenceByHand) {
  // Probabilities 1/2, 1/4, 1/4 against 1/4, 1/2, 1/4, both shifted.
  const float two = std::log(2.0F);
  const std::vector<float> p = {7 + two, 7, 7};
  const std::vector<float> q = {-3, -3 + two, -3};
  EXPECT_NEAR(negative_log_likelihood(p, 0), std::log(2.0), 1e-6);
  EXPECT_NEAR(negative_log_likelihood(q, 0), std::log(4.0), 1e-6);
  EXPECT_NEAR(kl_divergence(p, q), 0.25 * std::log(2.0), 1e-6);  // 1/2 log 2 - 1/4 log 2
  EXPECT_EQ(kl_divergence(p, p), 0);
  EXPECT_EQ(likeliest(p), 0);
  EXPECT_EQ(likeliest(std::vector<float>{1, 3, 3}), 1);
}

TEST(NextToken, LargeLogitsDoNotOverflow) {
  const std::vector<float> logits = {1e4F, 1e4F};
  EXPECT_NEAR(negative_log_likelihood(logits, 1), std::log(2.0), 1e-9);
}

}  // namespace
}  // namespace quest::eval
