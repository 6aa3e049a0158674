// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "selection/top_k.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

namespace quest {
namespace {

using Pages = std::vector<std::int32_t>;
using Scores = std::vector<float>;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

Pages top_k(const Scores& scores, std::int32_t k) {
  std::vector<std::uint32_t> keys(scores.size());
  EXPECT_TRUE(make_order_keys(scores, keys.data()));
  std::vector<std::uint32_t> refine;
  Pages pages(static_cast<std::size_t>(k) + 1);
  const std::int32_t count = list_passing(keys, find_threshold(keys, k, refine), 0, pages.data());
  EXPECT_EQ(count, k);
  pages.resize(static_cast<std::size_t>(k));
  return pages;
}

Pages sorted_top_k(const Scores& scores, std::int32_t k) {
  Pages order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::int32_t a, std::int32_t b) { return scores[a] > scores[b]; });
  order.resize(static_cast<std::size_t>(k));
  std::sort(order.begin(), order.end());
  return order;
}

TEST(TopK, EqualScoresGoToTheLowerPages) {
  const Scores scores(1000, 0.25F);
  Pages expected(17);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(top_k(scores, 17), expected);
}

TEST(TopK, HundredWinnersAmongThousandsOfTies) {
  Scores scores(8320, 0.0F);
  Pages winners;
  for (std::int32_t i = 0; i < 100; ++i) {
    winners.push_back(8319 - 83 * i);
    scores[winners.back()] = static_cast<float>(1 + i);
  }
  const Pages pages = top_k(scores, 2048);
  EXPECT_EQ(pages, sorted_top_k(scores, 2048));
  ASSERT_EQ(pages.size(), 2048U);
  EXPECT_GE(pages.front(), 0);
  EXPECT_LT(pages.back(), 8320);
  EXPECT_EQ(std::adjacent_find(pages.begin(), pages.end(), std::greater_equal<>()), pages.end());
  for (std::int32_t winner : winners) {
    EXPECT_TRUE(std::binary_search(pages.begin(), pages.end(), winner)) << winner;
  }
}

TEST(TopK, InfinitiesAreOrdinaryScores) {
  const Scores scores{-kInfinity,
                      3,
                      kInfinity,
                      -kInfinity,
                      kInfinity,
                      std::numeric_limits<float>::max(),
                      std::numeric_limits<float>::lowest()};
  EXPECT_EQ(top_k(scores, 1), (Pages{2}));
  EXPECT_EQ(top_k(scores, 2), (Pages{2, 4}));
  EXPECT_EQ(top_k(scores, 3), (Pages{2, 4, 5}));
  EXPECT_EQ(top_k(scores, 5), (Pages{1, 2, 4, 5, 6}));
  EXPECT_EQ(top_k(scores, 6), (Pages{0, 1, 2, 4, 5, 6}));
}

TEST(TopK, NegativeZeroTiesWithZero) {
  EXPECT_EQ(top_k({-1.0F, -0.0F, 0.0F, -0.0F}, 2), (Pages{1, 2}));
}

TEST(TopK, NaNOfEitherSignIsFlagged) {
  for (const float nan : {std::nanf(""), -std::nanf("")}) {
    for (std::size_t place : {0U, 7U, 99U}) {
      Scores scores(100, 1.0F);
      scores[place] = nan;
      std::vector<std::uint32_t> keys(scores.size());
      EXPECT_FALSE(make_order_keys(scores, keys.data())) << place;
    }
  }
}

TEST(TopK, NoScoreHasTheExcludedKey) {
  const Scores scores{-kInfinity, std::numeric_limits<float>::lowest(), -0.0F};
  std::vector<std::uint32_t> keys(scores.size());
  ASSERT_TRUE(make_order_keys(scores, keys.data()));
  for (std::uint32_t key : keys) EXPECT_GT(key, kExcludedKey);
}

TEST(TopK, ScratchOfEnoughSizeIsNotReallocated) {
  std::vector<std::uint32_t> keys(5000);
  for (std::size_t i = 0; i < keys.size(); ++i) {
    keys[i] = static_cast<std::uint32_t>(i * 2654435761U);
  }
  std::vector<std::uint32_t> refine(keys.size());
  const std::uint32_t* const before = refine.data();
  find_threshold(keys, 100, refine);
  EXPECT_EQ(refine.data(), before);
  EXPECT_EQ(refine.size(), keys.size());
}

/// Scores of several shapes: a few values with many ties, every bit pattern, and a bell curve.
Scores arbitrary_scores(std::size_t size) {
  const auto shape = *rc::gen::inRange(0, 3);
  std::mt19937 random(*rc::gen::arbitrary<std::uint32_t>());
  std::normal_distribution<float> bell(20.0F, 4.0F);
  Scores scores(size);
  for (float& score : scores) {
    if (shape == 0) score = static_cast<float>(static_cast<int>(random() % 7) - 3);
    if (shape == 1) score = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
    if (shape == 2) score = bell(random);
    if (std::isnan(score)) score = kInfinity;
  }
  return scores;
}

RC_GTEST_PROP(TopK, EqualsStableSort, ()) {
  const auto size = *rc::gen::inRange<std::size_t>(1, 3000);
  const Scores scores = arbitrary_scores(size);
  const auto k = *rc::gen::inRange<std::int32_t>(1, static_cast<std::int32_t>(size) + 1);
  RC_ASSERT(top_k(scores, k) == sorted_top_k(scores, k));
}

}  // namespace
}  // namespace quest
