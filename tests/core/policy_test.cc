// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "quest/policy.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>

#include "quest/counters.h"
#include "quest/error.h"

namespace quest {
namespace {

constexpr std::int64_t kEverything = std::numeric_limits<std::int64_t>::max();

/// Message of the refusal of the default policy changed by `change`; 2 layers, 3 KV heads, S = 16.
std::string refusal(const std::function<void(SelectionPolicy&)>& change) {
  SelectionPolicy policy;
  change(policy);
  try {
    validate(policy, 2, 3, 16);
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Policy, BudgetBelowOnePageIsRefusedWithTheRemedy) {
  EXPECT_EQ(refusal([](auto& p) { p.budget = 8; }),
            "budget 8 is less than one page of 16 tokens; give at least 16");
  EXPECT_EQ(refusal([](auto& p) { p.budget = 0; }),
            "budget 0 is less than one page of 16 tokens; give at least 16");
  EXPECT_EQ(refusal([](auto& p) { p.budget = -5; }),
            "budget -5 is less than one page of 16 tokens; give at least 16");
  EXPECT_EQ(refusal([](auto& p) { p.budget = 16; }), "accepted");
}

TEST(Policy, NegativeCountsAreRefused) {
  EXPECT_EQ(refusal([](auto& p) { p.sinks = -1; }), "sinks -1 is negative; give 0 or more");
  EXPECT_EQ(refusal([](auto& p) { p.window = -2; }), "window -2 is negative; give 0 or more");
  EXPECT_EQ(refusal([](auto& p) { p.dense_layers = -3; }),
            "dense_layers -3 is negative; give 0 or more");
}

TEST(Policy, BetaOutsideZeroToOneIsRefused) {
  EXPECT_EQ(refusal([](auto& p) { p.beta = 1.5F; }),
            "beta 1.5 is outside [0, 1]; give 1 for the bound or less to temper");
  EXPECT_NE(refusal([](auto& p) { p.beta = -0.25F; }), "accepted");
  EXPECT_NE(refusal([](auto& p) { p.beta = std::nanf(""); }), "accepted");
  EXPECT_EQ(refusal([](auto& p) { p.beta = 0; }), "accepted");
  EXPECT_EQ(refusal([](auto& p) { p.beta = 1; }), "accepted");
  EXPECT_EQ(refusal([](auto& p) { p.value_threshold = 1.5F; }),
            "value_threshold 1.5 is outside [0, 1]; give 0 to read every value or a share of the "
            "mean weight");
  EXPECT_NE(refusal([](auto& p) { p.value_threshold = -0.25F; }), "accepted");
  EXPECT_NE(refusal([](auto& p) { p.value_threshold = std::nanf(""); }), "accepted");
  EXPECT_EQ(refusal([](auto& p) { p.value_threshold = 1; }), "accepted");
}

TEST(Policy, CrossoverBelowOneIsRefused) {
  EXPECT_EQ(refusal([](auto& p) { p.crossover = 0.5F; }),
            "crossover 0.5 is below 1; give 1 to select wherever possible");
  EXPECT_NE(refusal([](auto& p) { p.crossover = std::nanf(""); }), "accepted");
  EXPECT_EQ(refusal([](auto& p) { p.crossover = 1; }), "accepted");
}

TEST(Policy, RowsUpToTheCrossoverReadEverything) {
  SelectionPolicy policy;
  policy.dense_layers = 1;
  policy.budget = 160;
  policy.crossover = 1.5F;
  const PageBudget budget = policy.page_budget(1, 0, 2, 16);
  EXPECT_EQ(budget.pages, 10);
  EXPECT_FALSE(budget.selects(15));
  EXPECT_TRUE(budget.selects(16));
  EXPECT_FALSE(policy.page_budget(0, 0, 2, 16).selects(1 << 30));
  policy.crossover = 1;
  EXPECT_FALSE(policy.page_budget(1, 0, 2, 16).selects(10));
  EXPECT_TRUE(policy.page_budget(1, 0, 2, 16).selects(11));
  policy.crossover = std::numeric_limits<float>::infinity();
  EXPECT_FALSE(policy.page_budget(1, 0, 2, 16).selects(std::int64_t{1} << 40));
}

TEST(Policy, BudgetTableIsCheckedEntryByEntry) {
  EXPECT_EQ(refusal([](auto& p) { p.budget_table.assign(5, 64); }),
            "budget_table has 5 entries; give 2 layers x 3 KV heads = 6");
  EXPECT_EQ(refusal([](auto& p) { p.budget_table = {64, 64, 64, 64, 8, 64}; }),
            "budget_table[layer 1, KV head 1] 8 is less than one page of 16 tokens; give at least "
            "16, or -1 to read everything");
  EXPECT_EQ(refusal([](auto& p) {
              p.budget_table = {64, SelectionPolicy::kDenseBudget, 64, 16, 64, 64};
            }),
            "accepted");
}

TEST(Policy, PageBudget_WholePagesAfterTheDenseLayers) {
  SelectionPolicy policy;
  policy.budget = 100;
  EXPECT_EQ(policy.page_budget(0, 0, 3, 16).pages, kEverything);
  EXPECT_EQ(policy.page_budget(1, 2, 3, 16).pages, kEverything);
  EXPECT_EQ(policy.page_budget(2, 0, 3, 16).pages, 6);
  EXPECT_EQ(policy.page_budget(2, 0, 3, 64).pages, 1);
  policy.dense = true;
  EXPECT_EQ(policy.page_budget(2, 0, 3, 16).pages, kEverything);
}

TEST(Policy, PageBudget_TableReplacesBudgetAndDenseLayers) {
  SelectionPolicy policy;
  policy.budget_table = {32, 48, SelectionPolicy::kDenseBudget, 64};
  EXPECT_EQ(policy.page_budget(0, 0, 2, 16).pages, 2);
  EXPECT_EQ(policy.page_budget(0, 1, 2, 16).pages, 3);
  EXPECT_EQ(policy.page_budget(1, 0, 2, 16).pages, kEverything);
  EXPECT_EQ(policy.page_budget(1, 1, 2, 16).pages, 4);
}

TEST(Policy, PaperIsThePlainPolicy) {
  const SelectionPolicy policy = SelectionPolicy::paper(2048);
  EXPECT_EQ(policy.budget, 2048);
  EXPECT_EQ(policy.group_mode, GroupMode::kPerHead);
  EXPECT_EQ(policy.beta, 1);
  EXPECT_EQ(policy.sinks, 0);
  EXPECT_EQ(policy.window, 0);
  EXPECT_EQ(policy.dense_layers, 2);
  EXPECT_FALSE(policy.dense);
}

TEST(Policy, GroupModeNamesRoundTrip) {
  for (const char* name : {"per-head", "group-max", "group-mean", "group-softmax", "quota"}) {
    const auto mode = parse_group_mode(name);
    ASSERT_TRUE(mode) << name;
    EXPECT_EQ(name_of(*mode), name);
  }
  EXPECT_FALSE(parse_group_mode("mean"));
  EXPECT_FALSE(parse_group_mode(""));
}

TEST(Counters, AddEveryField) {
  AttentionCounters a;
  a.k_bytes = 1;
  a.v_bytes = 2;
  a.summary_bytes = 3;
  a.dense_bytes = 4;
  a.pages_read = 5;
  a.sparse_lists = 6;
  a.dense_lists = 7;
  a.probe_bytes = 13;
  a.seconds = {8, 9, 10, 11, 12};
  a.certificates.add(14, 20, 0.5);
  AttentionCounters b = a;
  b += a;
  EXPECT_EQ(b.k_bytes, 2);
  EXPECT_EQ(b.v_bytes, 4);
  EXPECT_EQ(b.summary_bytes, 6);
  EXPECT_EQ(b.dense_bytes, 8);
  EXPECT_EQ(b.pages_read, 10);
  EXPECT_EQ(b.sparse_lists, 12);
  EXPECT_EQ(b.dense_lists, 14);
  EXPECT_EQ(b.seconds.append, 16);
  EXPECT_EQ(b.seconds.summarise, 18);
  EXPECT_EQ(b.seconds.score, 20);
  EXPECT_EQ(b.seconds.select, 22);
  EXPECT_EQ(b.seconds.attend, 24);
  EXPECT_EQ(b.probe_bytes, 26);
  EXPECT_EQ(b.certificates.lists, 2);
  EXPECT_EQ(b.certificates.pages, 28);
  EXPECT_EQ(b.bytes_read(), 2 * (1 + 2 + 3 + 13));
}

TEST(Policy, AnotherBudgetScalesTheTable) {
  SelectionPolicy policy;
  policy.budget = 100;
  policy.budget_table = {200, 50, SelectionPolicy::kDenseBudget, 16, 25, 100};
  const SelectionPolicy larger = policy.with_budget(250, 16);
  EXPECT_EQ(larger.budget, 250);
  EXPECT_EQ(larger.budget_table, (std::vector<std::int64_t>{500, 125, -1, 40, 63, 250}));
  const SelectionPolicy smaller = policy.with_budget(32, 16);
  EXPECT_EQ(smaller.budget_table, (std::vector<std::int64_t>{64, 16, -1, 16, 16, 32}));
}

TEST(Policy, AnotherBudgetComesFromCalibratedTables) {
  using Table = std::vector<std::int64_t>;
  constexpr std::int64_t kAll = SelectionPolicy::kDenseBudget;
  SelectionPolicy policy;
  policy.budget_table = {7, 7, 7, 7};  // not what a budget is made from
  policy.calibrated = {{100, {50, 150, 100, kAll}}, {200, {50, 350, kAll, kAll}}};
  const auto table = [&](std::int64_t budget) {
    return policy.with_budget(budget, 16).budget_table;
  };
  EXPECT_EQ(table(100), (Table{50, 150, 100, kAll}));
  EXPECT_EQ(table(200), (Table{50, 350, kAll, kAll}));
  EXPECT_EQ(table(125), (Table{50, 200, 125, kAll}));   // the third: 100 is nearer
  EXPECT_EQ(table(175), (Table{50, 300, kAll, kAll}));  // … 200 is
  EXPECT_EQ(table(50), (Table{25, 75, 50, kAll}));
  EXPECT_EQ(table(10), (Table{16, 16, 16, kAll}));  // no less than a page
  EXPECT_EQ(policy.with_budget(125, 64).budget_table, (Table{64, 200, 125, kAll}));
  EXPECT_EQ(policy.with_budget(100, 64).budget_table, (Table{64, 150, 100, kAll}));
  EXPECT_EQ(table(400), (Table{100, 700, kAll, kAll}));
  EXPECT_EQ(policy.with_budget(125, 16).with_budget(200, 16).budget_table, table(200));
}

TEST(Policy, CalibratedTablesAreChecked) {
  EXPECT_EQ(refusal([](auto& p) {
              p.calibrated = {{64, {64, 64, 64, 64, 64}}};
            }),
            "budget_table has 5 entries; give 2 layers x 3 KV heads = 6");
  EXPECT_EQ(refusal([](auto& p) {
              p.calibrated = {{64, {64, 64, 64, 64, 64, 64}}, {64, {64, 64, 64, 64, 64, 64}}};
            }),
            "calibrated budget 64 is not above the one before; give them in ascending order");
}

}  // namespace
}  // namespace quest
