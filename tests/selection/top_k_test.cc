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

/// Keys of the scores with room for the padding, which is poisoned beforehand.
std::vector<std::uint32_t> keys_of(const Scores& scores, KeyRange& range) {
  std::vector<std::uint32_t> keys(scores.size() + kKeyPadding, ~0U);
  range = make_order_keys(scores, keys.data());
  return keys;
}

Pages pages_of(const std::vector<std::uint64_t>& marks) {
  Pages pages;
  for (std::int32_t i = 0; i < static_cast<std::int32_t>(marks.size() * 64); ++i) {
    if ((marks[static_cast<std::size_t>(i / 64)] >> (i % 64) & 1U) != 0) pages.push_back(i);
  }
  return pages;
}

Pages top_k_of_keys(const std::vector<std::uint32_t>& keys, std::size_t count, std::int32_t k,
                    KeyRange range) {
  std::vector<std::uint32_t> refine(keys.size(), ~0U);
  std::vector<std::uint64_t> marks((count + 63) / 64, 0);
  mark_passing(keys.data(), count, find_threshold(keys.data(), count, k, range, refine.data()),
               marks.data());
  return pages_of(marks);
}

Pages top_k(const Scores& scores, std::int32_t k) {
  KeyRange range;
  const auto keys = keys_of(scores, range);
  EXPECT_FALSE(range.nan);
  return top_k_of_keys(keys, scores.size(), k, range);
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
    for (std::size_t place = 0; place < 100; ++place) {
      Scores scores(100, 1.0F);
      scores[place] = nan;
      KeyRange range;
      keys_of(scores, range);
      EXPECT_TRUE(range.nan) << place;
      EXPECT_TRUE(has_nan(scores)) << place;
    }
  }
  EXPECT_FALSE(has_nan(Scores(100, kInfinity)));
}

TEST(TopK, NoScoreHasTheExcludedKey) {
  KeyRange range;
  const Scores scores{-kInfinity, std::numeric_limits<float>::lowest(), -0.0F};
  const auto keys = keys_of(scores, range);
  EXPECT_GT(range.low, kExcludedKey);
  for (std::size_t i = 0; i < keys.size(); ++i) EXPECT_EQ(keys[i] == kExcludedKey, i >= 3) << i;
}

TEST(TopK, ExcludedKeysAreNeverChosen) {
  const Scores scores(200, -kInfinity);
  KeyRange range;
  auto keys = keys_of(scores, range);
  for (std::size_t i = 0; i < 200; ++i) {
    if (i % 3 != 0) keys[i] = kExcludedKey;
  }
  Pages expected;
  for (std::int32_t i = 0; i < 67; ++i) expected.push_back(3 * i);
  EXPECT_EQ(top_k_of_keys(keys, 200, 67, range), expected);
}

TEST(TopK, MarksAlreadySetStay) {
  KeyRange range;
  const auto keys = keys_of({1, 5, 3}, range);
  std::vector<std::uint32_t> refine(keys.size());
  std::vector<std::uint64_t> marks{1};
  mark_passing(keys.data(), 3, find_threshold(keys.data(), 3, 1, range, refine.data()),
               marks.data());
  EXPECT_EQ(pages_of(marks), (Pages{0, 1}));
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
