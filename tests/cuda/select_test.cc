// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
// The select kernel on the emulator against the host's selection: the same lists, whatever the
// scores (SPEC S4.8).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "cuda/select_case.h"

namespace quest::test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// The list of the host. Its softmax rounds otherwise: there the host chooses by the combined
/// scores of the kernels, which combine_test.cc compares.
void expect_host_list(const SelectCase& c, const std::string& what) {
  const Selected got = run_select(c);
  const bool softmax = c.mode == GroupMode::kGroupSoftmax;
  const PageScores scores{softmax ? got.combined.data() : c.scores.data(), c.num_pages,
                          softmax ? 1 : c.group, 1};
  SelectionScratch scratch;
  std::vector<std::int32_t> want(
      static_cast<std::size_t>(max_selected_pages(c.mode, c.group, c.budget, c.num_pages)));
  const std::int32_t count = select_pages(softmax ? GroupMode::kGroupMean : c.mode, scores,
                                          c.forced(), c.budget, scratch, want.data());
  if (count == kNanScore) {  // heads of opposite infinities have no mean
    ASSERT_EQ(c.mode, GroupMode::kQuota) << what;
    EXPECT_NE(got.report.nan_place, cuda::StepReport::kNoNan) << what;
    return;
  }
  want.resize(static_cast<std::size_t>(count));
  ASSERT_EQ(got.pages, want) << what << ", " << c.num_pages << " pages, budget " << c.budget;
  EXPECT_EQ(got.report.nan_place, cuda::StepReport::kNoNan);
  EXPECT_EQ(got.report.pages_read, static_cast<unsigned long long>(count));
  EXPECT_EQ(got.report.sparse_lists, count < c.num_pages ? 1U : 0U);
}

/// Scores of many kinds: spread, few distinct values, one value, extremes.
std::vector<float> scores_of(int kind, std::size_t count, std::mt19937& random) {
  std::vector<float> scores(count);
  std::normal_distribution<float> normal(0, 10);
  const float extremes[] = {kInfinity, -kInfinity, 0.0F, -0.0F, 1e-40F, -1e-40F, 3e38F, -3e38F};
  for (float& x : scores) {
    switch (kind) {
      case 0:
        x = normal(random);
        break;
      case 1:
        x = static_cast<float>(random() % 3);
        break;
      case 2:
        x = -7.25F;
        break;
      case 3:
        x = extremes[random() % 8];
        break;
      default:
        x = 1.0F + static_cast<float>(random() % 64) * 0x1p-23F;  // the last bits alone
    }
  }
  return scores;
}

constexpr GroupMode kModes[] = {GroupMode::kGroupMean, GroupMode::kGroupMax, GroupMode::kPerHead,
                                GroupMode::kGroupSoftmax, GroupMode::kQuota};

TEST(CudaSelect, ListsAreTheHosts) {
  std::mt19937 random(3);
  for (int i = 0; i < 500; ++i) {
    SelectCase c;
    c.mode = kModes[i % 5];
    c.group = 1 + static_cast<std::int32_t>(random() % 5);
    c.num_pages = 2 + static_cast<std::int32_t>(random() % (i % 10 == 0 ? 3000 : 100));
    c.tail_tokens = 1 + static_cast<std::int32_t>(random() % kPageSize);
    c.budget = 1 + static_cast<std::int32_t>(random() % static_cast<unsigned>(c.num_pages - 1));
    c.sinks = static_cast<std::int32_t>(random() % 40);
    c.window = static_cast<std::int32_t>(random() % 60);
    const int kind = i / 5 % 5;
    c.scores = scores_of(
        kind, static_cast<std::size_t>(num_score_rows(c.mode, c.group)) * c.num_pages, random);
    for (const bool several : {false, true}) {
      if (several && c.mode == GroupMode::kQuota) continue;
      c.several_blocks = several;
      expect_host_list(c, "case " + std::to_string(i) + " kind " + std::to_string(kind) +
                              (several ? " by several blocks" : ""));
      if (HasFatalFailure()) return;
    }
  }
}

/// Rows on both sides of what one block has room for, up to the longest there are; all-equal scores
/// and few distinct ones leave more candidates in one bin than there is room for.
TEST(CudaSelect, LongRowsAreTheHosts) {
  std::mt19937 random(4);
  int shift = 0;
  for (const std::int32_t num_pages : {6143, 6144, 6145, 6146, 40000, 65535, 65536}) {
    ++shift;
    for (int kind = 0; kind < 5; ++kind) {
      SelectCase c;
      c.mode = kModes[(shift + kind) % 5];
      c.group = 2;
      c.num_pages = num_pages;
      c.tail_tokens = 1 + static_cast<std::int32_t>(random() % kPageSize);
      c.budget = kind == 4 ? num_pages - 1 : num_pages / 16;
      c.sinks = kind == 0 ? 0 : 20;
      c.window = kind == 1 ? 0 : 64;
      c.scores = scores_of(
          kind, static_cast<std::size_t>(num_score_rows(c.mode, c.group)) * num_pages, random);
      expect_host_list(c, "kind " + std::to_string(kind));
      if (HasFatalFailure()) return;
    }
  }
}

/// Budgets from the forced pages alone to all but one.
TEST(CudaSelect, LongRows_AnyBudget) {
  std::mt19937 random(9);
  SelectCase c;
  c.num_pages = 10000;
  c.sinks = 16;
  c.window = 40;
  c.scores = scores_of(0, 10000, random);
  for (const std::int32_t budget : {1, 2, 8, 9, 10, 11, 2048, 9998, 9999}) {
    c.budget = budget;
    expect_host_list(c, "budget");
    if (HasFatalFailure()) return;
  }
}

/// A row of one page reads it: there is nothing to select.
TEST(CudaSelect, OnePage_IsLeftAlone) {
  for (const bool several : {false, true}) {
    SelectCase c;
    c.scores = {1.0F};
    c.several_blocks = several;
    const Selected selected = run_select(c);
    EXPECT_TRUE(selected.pages.empty());
    EXPECT_EQ(selected.report.pages_read, 0U);
  }
}

/// 100 winners and thousands of equal scores: no duplicate, nothing invalid, the lower pages win.
TEST(CudaSelect, Ties_FillTheBudgetWithTheLowerPages) {
  SelectCase c;
  c.num_pages = 8320;
  c.budget = 2048;
  c.scores.assign(8320, 0.0F);
  for (std::int32_t i = 0; i < 100; ++i) c.scores[static_cast<std::size_t>(8000 - 70 * i)] = 1;
  const Selected selected = run_select(c);
  ASSERT_EQ(selected.pages.size(), 2048U);
  EXPECT_TRUE(std::adjacent_find(selected.pages.begin(), selected.pages.end(),
                                 std::greater_equal<>()) == selected.pages.end());
  EXPECT_EQ(selected.pages.back(), 8319);  // the tail
  // 100 winners, the tail, and 1,947 zeros from page 0 on; winners among those pages count once.
  std::int32_t zeros = 0;
  for (const std::int32_t page : selected.pages) {
    if (page != 8319 && c.scores[static_cast<std::size_t>(page)] == 0) ++zeros;
  }
  EXPECT_EQ(zeros, 1947);
  EXPECT_LT(selected.pages[1900], 1947 + 100);
  expect_host_list(c, "ties");
}

/// A NaN anywhere, forced pages included, is reported with its place.
TEST(CudaSelect, Nan_IsReported) {
  for (const GroupMode mode : kModes) {
    for (const std::int32_t num_pages : {50, 9000}) {
      for (const std::int32_t page : {0, 20, num_pages / 2, num_pages - 1}) {
        SelectCase c;
        c.mode = mode;
        c.group = 3;
        c.num_pages = num_pages;
        c.budget = 10;
        c.sinks = 8;
        const auto rows = static_cast<std::size_t>(num_score_rows(mode, 3));
        const auto pages = static_cast<std::size_t>(num_pages);
        c.scores.assign(rows * pages, 0.5F);
        c.scores[(rows - 1) * pages + static_cast<std::size_t>(page)] = std::nanf("");
        const Selected selected = run_select(c);
        EXPECT_EQ(selected.report.nan_place, 5U * 2 + 1);  // layer 5, row 0, KV head 1
        EXPECT_THAT(selected.pages, testing::ElementsAre(0, num_pages - 1));  // the forced ones
      }
    }
  }
}

}  // namespace
}  // namespace quest::test
