// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "selection/forced_pages.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <vector>

#include "attention/reference/reference_selection.h"

namespace quest {
namespace {

using Pages = std::vector<std::int32_t>;

Pages list(const ForcedPages& forced) {
  Pages pages;
  for (std::int32_t p = 0; p < forced.sink_end; ++p) pages.push_back(p);
  for (std::int32_t p = forced.recent_begin; p < forced.num_pages; ++p) pages.push_back(p);
  return pages;
}

TEST(ForcedPages, BudgetIsSpentOnTailThenWindowThenSinks) {
  // 160 tokens, 10 pages; the last 40 tokens touch pages 7 … 9, the first 20 pages 0 and 1.
  const auto forced = [](std::int64_t budget) {
    return list(forced_pages(160, 16, 20, 40, budget));
  };
  EXPECT_EQ(forced(1), (Pages{9}));
  EXPECT_EQ(forced(2), (Pages{8, 9}));
  EXPECT_EQ(forced(3), (Pages{7, 8, 9}));
  EXPECT_EQ(forced(4), (Pages{0, 7, 8, 9}));
  EXPECT_EQ(forced(5), (Pages{0, 1, 7, 8, 9}));
  EXPECT_EQ(forced(6), (Pages{0, 1, 7, 8, 9})) << "the sixth page goes to the best score";
}

TEST(ForcedPages, TailIsForcedWithoutSinksAndWindow) {
  EXPECT_EQ(list(forced_pages(161, 16, 0, 0, 5)), (Pages{10}));
  EXPECT_EQ(list(forced_pages(160, 16, 0, 0, 1)), (Pages{9}));
}

TEST(ForcedPages, WindowCountsTokensAcrossThePageBorder) {
  // 97 tokens: the tail page holds one of them.
  EXPECT_EQ(list(forced_pages(97, 16, 0, 1, 5)), (Pages{6}));
  EXPECT_EQ(list(forced_pages(97, 16, 0, 2, 5)), (Pages{5, 6}));
  EXPECT_EQ(list(forced_pages(97, 16, 0, 17, 5)), (Pages{5, 6}));
  EXPECT_EQ(list(forced_pages(97, 16, 0, 18, 5)), (Pages{4, 5, 6}));
}

TEST(ForcedPages, OverlapIsCountedOnce) {
  const ForcedPages forced = forced_pages(64, 16, 40, 40, 3);
  EXPECT_EQ(list(forced), (Pages{1, 2, 3}));
  EXPECT_EQ(forced.count(), 3);
  EXPECT_EQ(forced.num_candidates(), 1);
}

TEST(ForcedPages, BudgetOfAllPagesForcesAll) {
  EXPECT_EQ(list(forced_pages(33, 16, 0, 0, 3)), (Pages{0, 1, 2}));
  EXPECT_EQ(forced_pages(33, 16, 0, 0, 3).num_candidates(), 0);
}

TEST(ForcedPages, EmptyRowHasNone) { EXPECT_EQ(forced_pages(0, 16, 4, 4, 8).count(), 0); }

RC_GTEST_PROP(ForcedPages, AgreeWithReference, ()) {
  const auto kv_len = *rc::gen::inRange<std::int64_t>(1, 300);
  const auto page_size = *rc::gen::element(8, 16, 32, 64);
  SelectionPolicy policy;
  policy.sinks = *rc::gen::inRange(0, 100);
  policy.window = *rc::gen::inRange(0, 320);
  const std::int64_t num_pages = (kv_len + page_size - 1) / page_size;
  RC_PRE(num_pages > 1);
  const auto budget = *rc::gen::inRange<std::int64_t>(1, num_pages);
  Pages expected = reference::forced_pages(policy, kv_len, page_size, budget);
  RC_ASSERT(expected.front() == num_pages - 1);
  std::sort(expected.begin(), expected.end());
  RC_ASSERT(list(forced_pages(kv_len, page_size, policy.sinks, policy.window, budget)) == expected);
}

}  // namespace
}  // namespace quest
