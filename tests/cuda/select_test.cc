// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
// The select kernel on the emulator against the host's selection: the same lists, whatever the
// scores (SPEC S4.8).
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "attention/cuda/device.h"
#include "cuda/emulator/emulated_device.h"
#include "selection/group_selection.h"

namespace quest::test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr std::int32_t kPageSize = 8;

struct SelectCase {
  GroupMode mode = GroupMode::kGroupMean;
  std::int32_t group = 1;
  std::int32_t num_pages = 1;
  std::int32_t tail_tokens = kPageSize;
  std::int32_t budget = 1;  ///< pages
  std::int32_t sinks = 0;
  std::int32_t window = 0;
  std::vector<float> scores;  ///< [score rows, num_pages]
};

struct Selected {
  std::vector<std::int32_t> pages;
  cuda::StepReport report;
};

Selected run_kernel(const SelectCase& c) {
  const auto device = emulator::make_device();
  // One row whose second KV head selects; the first reads everything and is left alone.
  cuda::LayerArgs args;
  args.shape.num_kv_heads = 2;
  args.shape.head_dim = 64;
  args.shape.page_shift = 3;
  args.layer = 5;
  args.group = c.group;
  args.mode = c.mode;
  args.sinks = c.sinks;
  args.window = c.window;
  const cuda::StepCounts counts{1, 0, 0};
  const cuda::Row row{0, c.num_pages, c.tail_tokens, 1, 0};
  const cuda::HeadBudget budgets[2] = {{c.num_pages, c.num_pages}, {c.budget, c.budget}};
  args.counts = &counts;
  args.rows = &row;
  args.budgets = budgets;
  args.score_rows = num_score_rows(c.mode, c.group);
  args.scores_stride = c.num_pages + 5;
  // Greater garbage beyond the pages and in the other head's place is never selected.
  std::vector<float> scores(static_cast<std::size_t>(2 * args.score_rows * args.scores_stride),
                            1e30F);
  for (std::int32_t r = 0; r < args.score_rows; ++r) {
    std::copy_n(c.scores.begin() + r * c.num_pages, c.num_pages,
                scores.begin() + (args.score_rows + r) * args.scores_stride);
  }
  args.scores = scores.data();
  args.first_scored = 0;
  args.end_scored = 1;
  args.list_stride = max_selected_pages(c.mode, c.group, c.budget, c.num_pages);
  std::vector<std::int32_t> lists(static_cast<std::size_t>(2 * args.list_stride), -1);
  std::int32_t list_count[2] = {-1, -1};
  args.lists = lists.data();
  args.list_count = list_count;
  Selected selected;
  selected.report.nan_place = cuda::StepReport::kNoNan;
  args.report = &selected.report;
  device->launch(cuda::Kernel::kSelect, args, 2);
  EXPECT_EQ(list_count[0], -1);
  selected.pages.assign(lists.begin() + args.list_stride,
                        lists.begin() + args.list_stride + list_count[1]);
  return selected;
}

void expect_host_list(const SelectCase& c, const std::string& what) {
  SelectionScratch scratch;
  const ForcedPages forced = forced_pages(std::int64_t{c.num_pages - 1} * kPageSize + c.tail_tokens,
                                          kPageSize, c.sinks, c.window, c.budget);
  std::vector<std::int32_t> want(
      static_cast<std::size_t>(max_selected_pages(c.mode, c.group, c.budget, c.num_pages)));
  const std::int32_t count =
      select_pages(c.mode, PageScores{c.scores.data(), c.num_pages, c.group, 1}, forced, c.budget,
                   scratch, want.data());
  ASSERT_GT(count, 0);
  want.resize(static_cast<std::size_t>(count));
  const Selected got = run_kernel(c);
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

constexpr GroupMode kModes[] = {GroupMode::kGroupMean, GroupMode::kGroupMax, GroupMode::kPerHead};

TEST(CudaSelect, ListsAreTheHosts) {
  std::mt19937 random(3);
  for (int i = 0; i < 400; ++i) {
    SelectCase c;
    c.mode = kModes[i % 3];
    c.group = 1 + static_cast<std::int32_t>(random() % 5);
    c.num_pages = 2 + static_cast<std::int32_t>(random() % (i % 10 == 0 ? 3000 : 100));
    c.tail_tokens = 1 + static_cast<std::int32_t>(random() % kPageSize);
    c.budget = 1 + static_cast<std::int32_t>(random() % static_cast<unsigned>(c.num_pages - 1));
    c.sinks = static_cast<std::int32_t>(random() % 40);
    c.window = static_cast<std::int32_t>(random() % 60);
    const int kind = i / 3 % 5;
    c.scores = scores_of(
        kind, static_cast<std::size_t>(num_score_rows(c.mode, c.group) * c.num_pages), random);
    expect_host_list(c, "case " + std::to_string(i) + " kind " + std::to_string(kind));
    if (HasFatalFailure()) return;
  }
}

/// Rows on both sides of what is kept in shared memory, up to the longest there are.
TEST(CudaSelect, LongRowsAreTheHosts) {
  std::mt19937 random(4);
  for (const std::int32_t num_pages : {6143, 6144, 6145, 6146, 40000, cuda::kMaxScoredPages}) {
    for (const int kind : {0, 1, 3}) {
      SelectCase c;
      c.mode = kind == 1 ? GroupMode::kPerHead : GroupMode::kGroupMean;
      c.group = 2;
      c.num_pages = num_pages;
      c.budget = num_pages / 16;
      c.sinks = 4;
      c.window = 64;
      c.scores = scores_of(
          kind, static_cast<std::size_t>(num_score_rows(c.mode, c.group)) * num_pages, random);
      expect_host_list(c, "kind " + std::to_string(kind));
      if (HasFatalFailure()) return;
    }
  }
}

/// 100 winners and thousands of equal scores: no duplicate, nothing invalid, the lower pages win.
TEST(CudaSelect, Ties_FillTheBudgetWithTheLowerPages) {
  SelectCase c;
  c.num_pages = 8320;
  c.budget = 2048;
  c.scores.assign(8320, 0.0F);
  for (std::int32_t i = 0; i < 100; ++i) c.scores[static_cast<std::size_t>(8000 - 70 * i)] = 1;
  const Selected selected = run_kernel(c);
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
    for (const std::int32_t page : {0, 20, 49}) {
      SelectCase c;
      c.mode = mode;
      c.group = 3;
      c.num_pages = 50;
      c.budget = 10;
      c.sinks = 8;
      const std::int32_t rows = num_score_rows(mode, 3);
      c.scores.assign(static_cast<std::size_t>(rows * 50), 0.5F);
      c.scores[static_cast<std::size_t>((rows - 1) * 50 + page)] = std::nanf("");
      EXPECT_EQ(run_kernel(c).report.nan_place, 5U * 2 + 1);  // layer 5, row 0, KV head 1
    }
  }
}

}  // namespace
}  // namespace quest::test
