// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "attention/reference/reference_selection.h"
#include "selection/fold_query.h"

namespace quest {
namespace {

using Vector = std::vector<float>;

float dot(const Vector& a, const Vector& b) {
  float sum = 0;
  for (std::size_t j = 0; j < a.size(); ++j) sum += a[j] * b[j];
  return sum;
}

/// Minimum and maximum of the keys, one after the other: [2, d].
Vector summary_of(const std::vector<Vector>& keys) {
  const std::size_t d = keys[0].size();
  Vector summary(2 * d);
  for (std::size_t j = 0; j < d; ++j) {
    summary[j] = summary[d + j] = keys[0][j];
    for (const Vector& key : keys) {
      summary[j] = std::min(summary[j], key[j]);
      summary[d + j] = std::max(summary[d + j], key[j]);
    }
  }
  return summary;
}

float folded_score(const std::vector<Vector>& queries, const Vector& summary, float beta) {
  const auto d = static_cast<std::int32_t>(queries[0].size());
  Vector rows;
  for (const Vector& q : queries) rows.insert(rows.end(), q.begin(), q.end());
  Vector coefficients(summary.size());
  fold_query(rows.data(), d, static_cast<std::int32_t>(queries.size()), d, beta,
             coefficients.data());
  return dot(coefficients, summary);
}

/// The score by both implementations, which must agree on the worked values.
float bound(const Vector& q, const std::vector<Vector>& keys) {
  const Vector summary = summary_of(keys);
  const double reference =
      reference::score_page(q.data(), summary.data(), summary.data() + q.size(),
                            static_cast<std::int32_t>(q.size()), 1.0);
  const float folded = folded_score({q}, summary, 1.0F);
  EXPECT_NEAR(folded, reference, 1e-6);
  return folded;
}

// SPEC S3.2, row by row.

TEST(Score, WorkedValue_SignAndSlack) {
  const Vector q{1, 0.5F, -0.2F};
  const std::vector<Vector> a{{-0.5F, -0.1F, -0.3F}, {0.7F, 1.2F, 0.9F}};
  const std::vector<Vector> b{{1.2F, 0, 0}};
  EXPECT_NEAR(bound(q, a), 1.36, 1e-6);
  EXPECT_NEAR(dot(q, a[0]), -0.49, 1e-6);
  EXPECT_NEAR(dot(q, a[1]), 1.12, 1e-6);
  EXPECT_NEAR(bound(q, b), 1.2, 1e-6);
  EXPECT_NEAR(dot(q, b[0]), 1.2, 1e-6);
  EXPECT_GT(bound(q, a), bound(q, b)) << "A must rank above B although B holds the larger logit";
}

TEST(Score, WorkedValue_TwoDimensionalPage) {
  const Vector q{2, -1};
  const std::vector<Vector> keys{{1, 4}, {3, -2}, {-1, 1}};
  EXPECT_EQ(summary_of(keys), (Vector{-1, -2, 3, 4}));
  EXPECT_EQ(bound(q, keys), 8);
  EXPECT_EQ(dot(q, keys[0]), -2);
  EXPECT_EQ(dot(q, keys[1]), 8);
  EXPECT_EQ(dot(q, keys[2]), -3);
}

TEST(Score, WorkedValue_SameBoxOtherKeys) {
  const Vector q{2, -1};
  const std::vector<Vector> keys{{3, 4}, {-1, -2}};
  EXPECT_EQ(bound(q, keys), 8);
  EXPECT_EQ(dot(q, keys[0]), 2);
  EXPECT_EQ(dot(q, keys[1]), 0);
}

TEST(Score, WorkedValue_TwoSteps) {
  const std::vector<Vector> a{{1, 0}, {3, -2}, {-1, 1}};
  std::vector<Vector> b{{0, 2}, {1, 4}};
  const Vector first{2, -1};
  EXPECT_EQ(bound(first, a), 8);
  EXPECT_EQ(bound(first, b), 0);

  const Vector second{0, 1};
  EXPECT_EQ(bound(second, b), 4) << "before the append";
  b.push_back({-2, 5});
  EXPECT_EQ(summary_of(b), (Vector{-2, 2, 1, 5}));
  EXPECT_EQ(bound(second, a), 1);
  EXPECT_EQ(bound(second, b), 5);
}

TEST(Score, WorkedValue_RightBoundWrongRecall) {
  // (true maximum, bound) of A … D; in two dimensions q = (1, 1) and two keys reach any such pair.
  const Vector q{1, 1};
  const std::vector<std::vector<Vector>> pages{
      {{5, 5}}, {{3, 0}, {-8, 11}}, {{2, 0}, {-8, 10}}, {{1, 0}, {-2, 3}}};
  const double expected[][2] = {{10, 10}, {3, 14}, {2, 12}, {1, 4}};
  std::vector<double> bounds;
  for (std::size_t p = 0; p < pages.size(); ++p) {
    float best = -1e9F;
    for (const Vector& key : pages[p]) best = std::max(best, dot(q, key));
    EXPECT_EQ(best, expected[p][0]);
    bounds.push_back(bound(q, pages[p]));
    EXPECT_EQ(bounds.back(), expected[p][1]);
  }
  bool nan = false;
  using Pages = std::vector<std::int32_t>;
  EXPECT_EQ(reference::select_pages(GroupMode::kPerHead, {bounds}, {}, 2, 1, nan), (Pages{1, 2}))
      << "K = 2 misses A";
  EXPECT_EQ(reference::select_pages(GroupMode::kPerHead, {bounds}, {}, 3, 1, nan), (Pages{0, 1, 2}))
      << "K = 3 finds A";
}

Vector arbitrary_vector(std::size_t size) {
  const auto hundredths = *rc::gen::container<std::vector<int>>(size, rc::gen::inRange(-999, 1000));
  Vector values;
  for (int x : hundredths) values.push_back(static_cast<float>(x) / 100);
  return values;
}

RC_GTEST_PROP(Score, BoundIsAboveEveryDotProductOfThePage, ()) {
  const auto d = *rc::gen::inRange<std::size_t>(1, 40);
  const auto num_keys = *rc::gen::inRange(1, 20);
  const Vector q = arbitrary_vector(d);
  std::vector<Vector> keys;
  for (int i = 0; i < num_keys; ++i) keys.push_back(arbitrary_vector(d));
  const Vector summary = summary_of(keys);
  const double u = reference::score_page(q.data(), summary.data(), summary.data() + d,
                                         static_cast<std::int32_t>(d), 1.0);
  for (const Vector& key : keys) {
    double exact = 0;
    for (std::size_t j = 0; j < d; ++j) exact += double{q[j]} * key[j];
    RC_ASSERT(u >= exact - 1e-9);
    // The folded score adds 2·d products below 100 in float32.
    RC_ASSERT(folded_score({q}, summary, 1.0F) >= exact - 1e-6 * 100 * 2 * static_cast<double>(d));
  }
}

RC_GTEST_PROP(Score, FoldedGroupEqualsMeanOfDirectScores, ()) {
  const auto d = *rc::gen::inRange<std::size_t>(1, 40);
  const auto group = *rc::gen::inRange(1, 9);
  const float beta = static_cast<float>(*rc::gen::inRange(0, 5)) / 4;
  std::vector<Vector> queries;
  for (int g = 0; g < group; ++g) queries.push_back(arbitrary_vector(d));
  const Vector summary = summary_of({arbitrary_vector(d), arbitrary_vector(d)});
  double mean = 0;
  for (const Vector& q : queries) {
    for (std::size_t j = 0; j < d; ++j) {
      const double centre = (double{summary[j]} + summary[d + j]) / 2;
      const double half_width = (double{summary[d + j]} - summary[j]) / 2;
      mean += (q[j] * centre + double{beta} * std::abs(q[j]) * half_width) / group;
    }
  }
  RC_ASSERT(std::abs(folded_score(queries, summary, beta) - mean) <=
            1e-6 * 100 * 2 * static_cast<double>(d));
}

RC_GTEST_PROP(Score, FoldToBoxGivesTheScoresOfFold, ()) {
  const auto d = *rc::gen::inRange<std::size_t>(1, 40);
  const auto group = *rc::gen::inRange(1, 9);
  const float beta = static_cast<float>(*rc::gen::inRange(0, 5)) / 4;
  Vector rows;
  std::vector<Vector> queries;
  for (int g = 0; g < group; ++g) {
    queries.push_back(arbitrary_vector(d));
    rows.insert(rows.end(), queries.back().begin(), queries.back().end());
  }
  const Vector summary = summary_of({arbitrary_vector(d), arbitrary_vector(d)});
  Vector box(summary.size());
  for (std::size_t j = 0; j < d; ++j) {
    box[j] = (summary[j] + summary[d + j]) / 2;
    box[d + j] = (summary[d + j] - summary[j]) / 2;
  }
  Vector coefficients(summary.size());
  fold_query_to_box(rows.data(), static_cast<std::int64_t>(d), group, static_cast<std::int32_t>(d),
                    beta, coefficients.data());
  RC_ASSERT(std::abs(dot(coefficients, box) - folded_score(queries, summary, beta)) <=
            1e-6F * 100 * 2 * static_cast<float>(d));
}

TEST(Score, FoldToBoxIsTheMeanQueryAndTheMeanOfItsSizes) {
  const float q[] = {1, -2, 99, 3, 4, 99};
  float coefficients[4];
  fold_query_to_box(q, 3, 2, 2, 0.5F, coefficients);
  EXPECT_EQ((Vector{coefficients, coefficients + 4}), (Vector{2, 1, 1, 1.5F}));
  const float nan[] = {std::nanf(""), 1};
  fold_query_to_box(nan, 2, 1, 2, 0.5F, coefficients);
  EXPECT_TRUE(std::isnan(coefficients[0]));
  EXPECT_TRUE(std::isnan(coefficients[2]));
}

TEST(Score, FoldAtBetaOneTouchesOneSideOfTheBox) {
  const float q[] = {3, -2, 0};
  float coefficients[6];
  fold_query(q, 3, 1, 3, 1.0F, coefficients);
  EXPECT_EQ((Vector{coefficients, coefficients + 6}), (Vector{0, -2, 0, 3, 0, 0}));
}

TEST(Score, FoldReadsRowsAtTheirStride) {
  const float q[] = {1, 2, 99, 3, 4, 99};
  float coefficients[4];
  fold_query(q, 3, 2, 2, 0.0F, coefficients);
  EXPECT_EQ((Vector{coefficients, coefficients + 4}), (Vector{1, 1.5F, 1, 1.5F}));
}

TEST(Score, FoldKeepsNaN) {
  const float q[] = {std::nanf(""), 1};
  float coefficients[4];
  fold_query(q, 2, 1, 2, 0.5F, coefficients);
  EXPECT_TRUE(std::isnan(coefficients[0]));
  EXPECT_TRUE(std::isnan(coefficients[2]));
}

}  // namespace
}  // namespace quest
