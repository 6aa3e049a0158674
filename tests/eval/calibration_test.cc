// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
// Curves of a tiny model, and the division of budgets against hand values and brute force.
#include "quest/eval/calibration.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>

#include "model/engine_reader.h"
#include "model/random_tokens.h"
#include "model/tiny_gguf.h"
#include "quest/error.h"

namespace quest::eval {
namespace {

using Budgets = std::vector<std::int64_t>;

BudgetCurves curves_of(std::int32_t heads, Budgets levels, std::vector<double> kl) {
  BudgetCurves curves;
  curves.num_layers = 1;
  curves.num_kv_heads = heads;
  curves.levels = std::move(levels);
  curves.harm = std::move(kl);
  return curves;
}

std::int64_t total(const Budgets& budgets) {
  return std::accumulate(budgets.begin(), budgets.end(), std::int64_t{0});
}

/// harm(b) = floor + gain / b for every head, at each level.
BudgetCurves hyperbolas(const Budgets& levels, const std::vector<double>& gains,
                        const std::vector<double>& floors) {
  std::vector<double> harm;
  for (std::size_t i = 0; i < gains.size(); ++i) {
    for (const std::int64_t level : levels) {
      harm.push_back(floors[i] + gains[i] / static_cast<double>(level));
    }
  }
  return curves_of(static_cast<std::int32_t>(gains.size()), levels, std::move(harm));
}

TEST(AllocateBudgets, BudgetsGoWithTheSquareRootsOfTheGains) {
  // Σ gain / b for Σ b = 1200 is least at 200, 400 and 600: gain / b² is 1/40000 for each.
  const Budgets levels = {64, 128, 256, 512, 1024};
  const BudgetCurves curves = hyperbolas(levels, {1, 4, 9}, {0.5, 0.5, 0.5});
  EXPECT_EQ(allocate_budgets(curves, 400, 8), (Budgets{200, 400, 600}));
}

TEST(AllocateBudgets, FloorsAndTheLowestLevelChangeNothing) {
  const Budgets levels = {64, 128, 256, 512, 1024};
  BudgetCurves curves = hyperbolas(levels, {1, 4, 9}, {0.5, 7, 0.25});
  for (std::size_t head = 0; head < 3; ++head) curves.harm[head * levels.size()] = 1e3;
  EXPECT_EQ(allocate_budgets(curves, 400, 8), (Budgets{200, 400, 600}));
}

TEST(AllocateBudgets, TwoLevelsAreFittedToo) {
  EXPECT_EQ(allocate_budgets(hyperbolas({128, 1024}, {1, 9}, {0, 0}), 400, 8), (Budgets{200, 600}));
}

TEST(AllocateBudgets, StaysInsideWhatWasMeasured) {
  const BudgetCurves curves = hyperbolas({64, 128, 256}, {1, 100}, {0, 0});
  EXPECT_EQ(allocate_budgets(curves, 10, 8), (Budgets{64, 64}));
  EXPECT_EQ(allocate_budgets(curves, 160, 8), (Budgets{64, 256}));
  EXPECT_EQ(allocate_budgets(curves, 1e6, 8), (Budgets{256, 256}));
}

TEST(AllocateBudgets, HeadsThatGainNothingGetLittle) {
  // More tokens that harm, as noise has it: the least gain that counts, a fiftieth of the median.
  const BudgetCurves curves =
      curves_of(3, {64, 128, 256}, {0.1, 0.2, 0.3, 0.5, 0.25, 0.125, 0.5, 0.25, 0.125});
  const Budgets budgets = allocate_budgets(curves, 128, 8);
  EXPECT_EQ(budgets[0], 64);
  EXPECT_EQ(budgets[1], budgets[2]);
  EXPECT_EQ(budgets[1], 160);
  // Most gain nothing: the one that does gets what is left.
  EXPECT_EQ(allocate_budgets(hyperbolas({64, 128, 256}, {1e-6, -1e-6, -1e-6}, {1, 1, 1}), 112, 8),
            (Budgets{208, 64, 64}));
  // Nobody gains: all alike.
  EXPECT_EQ(allocate_budgets(curves_of(2, {64, 128, 256}, {1, 1, 1, 1, 1, 1}), 128, 8),
            (Budgets{128, 128}));
}

TEST(BudgetsWithin, EveryHeadTakesTheLeastThatIsEnough) {
  const BudgetCurves curves =
      curves_of(3, {1, 2, 4}, {0.5, 0.05, 0.01, 0.05, 0.2, 0.0, 0.9, 0.8, 0.7});
  EXPECT_EQ(budgets_within(curves, 0.05), (Budgets{2, 1, 4}));  // the last misses it everywhere
  EXPECT_EQ(budgets_within(curves, 0.04), (Budgets{4, 4, 4}));
  EXPECT_EQ(budgets_within(curves, 1), (Budgets{1, 1, 1}));
}

TEST(AllocateBudgets, NoOtherWholePagesHarmLess) {
  std::mt19937 random(5);
  std::uniform_real_distribution<double> gain(0.1, 3);
  constexpr std::int32_t kPage = 8;
  for (int round = 0; round < 50; ++round) {
    const std::vector<double> gains = {gain(random), gain(random), gain(random)};
    const BudgetCurves curves = hyperbolas({16, 32, 64, 128}, gains, {1, 1, 1});
    const auto harm = [&](const Budgets& b) {
      double sum = 0;
      for (std::size_t i = 0; i < 3; ++i) sum += gains[i] / static_cast<double>(b[i]);
      return sum;
    };
    const double tokens = 24 + 4 * (round % 20);
    const Budgets budgets = allocate_budgets(curves, tokens, kPage);
    EXPECT_LE(static_cast<double>(total(budgets)), 3 * tokens);
    // Among divisions of no more than was really spent. Rounding down to pages may be off by one
    // page of one head from the best, which is bounded by what a page more would have saved.
    double least = std::numeric_limits<double>::max();
    for (std::int64_t a = 16; a <= 128; a += kPage) {
      for (std::int64_t b = 16; b <= 128; b += kPage) {
        for (std::int64_t c = 16; c <= 128; c += kPage) {
          if (a + b + c <= total(budgets)) least = std::min(least, harm({a, b, c}));
        }
      }
    }
    double page = 0;
    for (std::size_t i = 0; i < 3; ++i) {
      const auto now = static_cast<double>(budgets[i]);
      page = std::max(page, gains[i] / now - gains[i] / (now + kPage));
    }
    EXPECT_LE(harm(budgets), least + page);
  }
}

class CalibrationTest : public ::testing::Test {
 protected:
  CalibrationTest()
      : file_(testing::TinyModel()),
        engine_(testing::make_engine(file_.path(), testing::dense_options(KvType::kF32, 1200))) {
    plan_.context = 300;
    plan_.tokens = 20;
    plan_.rows = 10;
    for (const std::uint32_t seed : {3U, 4U}) {
      windows_.push_back(testing::random_tokens(
          testing::TinyModel().vocabulary, static_cast<std::size_t>(plan_.window_tokens()), seed));
    }
  }

  testing::TemporaryFile file_;
  std::unique_ptr<Engine> engine_;
  PerplexityPlan plan_;
  std::vector<std::vector<Token>> windows_;
};

TEST_F(CalibrationTest, CurvesAreThoseOfPerplexityArmsWithOneSparseHead) {
  SelectionPolicy policy;
  const auto curves =
      measure_budget_curves(*engine_, plan_, windows_, policy, {96, 192}, 0).value();
  const ModelInfo& info = engine_->model().info();
  const auto heads = static_cast<std::size_t>(info.num_layers * info.num_kv_heads);
  ASSERT_EQ(curves.harm.size(), heads * 2);
  for (const std::size_t head : {std::size_t{0}, heads - 1}) {
    Arm arm;
    arm.policy.crossover = 1;
    arm.policy.budget_table.assign(heads, SelectionPolicy::kDenseBudget);
    arm.policy.budget_table[head] = 96;
    double kl = 0;
    for (const auto& window : windows_) {
      const auto result = run_window(*engine_, plan_, window, std::span(&arm, 1)).value();
      for (const double value : result.arms[0].kl) kl += value / 40;
    }
    EXPECT_GT(kl, 0);
    EXPECT_NEAR(curves.head(static_cast<std::int64_t>(head))[0], kl, 1e-9 + 1e-6 * kl);
  }
}

TEST_F(CalibrationTest, SameRunSameCurvesAndTheEngineKeepsItsPolicy) {
  engine_->set_policy(SelectionPolicy::paper(128));
  const std::int64_t free_pages = engine_->cache().free_pages();
  const auto once = measure_budget_curves(*engine_, plan_, windows_, {}, {96, 192}, 0).value();
  const auto again = measure_budget_curves(*engine_, plan_, windows_, {}, {96, 192}, 0).value();
  EXPECT_EQ(once.harm, again.harm);
  EXPECT_EQ(engine_->options().policy.budget, 128);
  EXPECT_EQ(engine_->cache().free_pages(), free_pages);
}

TEST_F(CalibrationTest, AHeadThatIsSettledIsNotMeasuredAgain) {
  const auto curves = measure_budget_curves(*engine_, plan_, windows_, {}, {96, 192}, 1e9).value();
  for (std::int64_t head = 0; head < 2; ++head) {
    EXPECT_GT(curves.head(head)[0], 0);
    EXPECT_EQ(curves.head(head)[0], curves.head(head)[1]);
  }
}

TEST_F(CalibrationTest, PoliciesAreMeasuredAsPerplexityArmsAre) {
  std::vector<SelectionPolicy> policies(2);
  policies[0].budget = 96;
  policies[0].dense_layers = 0;
  policies[1].budget = 160;
  policies[1].dense_layers = 0;
  policies[1].beta = 1;
  const std::vector<double> kl = measure_policies(*engine_, plan_, windows_, policies).value();
  ASSERT_EQ(kl.size(), 2U);
  for (std::size_t i = 0; i < 2; ++i) {
    Arm arm;
    arm.policy = policies[i];
    double expected = 0;
    for (const auto& window : windows_) {
      const auto result = run_window(*engine_, plan_, window, std::span(&arm, 1)).value();
      for (const double value : result.arms[0].kl) expected += value / 40;
    }
    EXPECT_GT(expected, 0);
    EXPECT_NEAR(kl[i], expected, 1e-9 + 1e-6 * expected);
  }
  EXPECT_FALSE(measure_policies(*engine_, plan_, windows_, policies,
                                [](std::int64_t done, std::int64_t) { return done < 3; }));
  EXPECT_THROW(measure_policies(*engine_, plan_, {}, policies), InvalidArgument);
}

TEST_F(CalibrationTest, MissedMassIsThatOfTheWorstHeadOfTheGroup) {
  EngineOptions options = testing::dense_options(KvType::kF32, 1200);
  Fidelity fidelity(Model::load(file_.path()), options);
  const auto curves =
      measure_mass_curves(fidelity, plan_, windows_, SelectionPolicy{}, {96, 336}).value();
  const ModelInfo& info = fidelity.engine().model().info();
  const std::int32_t group = info.num_q_heads / info.num_kv_heads;
  ASSERT_GT(group, 1);
  Arm arm;
  arm.policy.budget = 96;
  arm.policy.dense_layers = 0;
  FidelityPlan plan;
  plan.text = plan_;
  FidelityRun sum = fidelity.run(plan, windows_[0], arm)->teacher_forced;
  sum += fidelity.run(plan, windows_[1], arm)->teacher_forced;
  for (std::int32_t layer = 0; layer < info.num_layers; ++layer) {
    for (std::int32_t head = 0; head < info.num_kv_heads; ++head) {
      double missed = 0;
      for (std::int32_t g = 0; g < group; ++g) {
        missed = std::max(missed, 1 - sum.head(layer, head * group + g).mass / 40);
      }
      const auto levels = curves.head(std::int64_t{layer} * info.num_kv_heads + head);
      EXPECT_NEAR(levels[0], missed, 1e-12);
      EXPECT_GT(levels[0], 0);
      EXPECT_NEAR(levels[1], 0, 1e-9);  // everything is read
    }
  }
}

TEST_F(CalibrationTest, ProgressStopsIt) {
  int calls = 0;
  const auto curves = measure_budget_curves(
      *engine_, plan_, windows_, {}, {96, 192}, 0,
      [&](std::int64_t done, std::int64_t) { return ++calls < 8 || done < 2; });
  EXPECT_FALSE(curves);
}

TEST_F(CalibrationTest, BadRequestsAreRefused) {
  EXPECT_THROW(measure_budget_curves(*engine_, plan_, {}, {}, {96}, 0), InvalidArgument);
  EXPECT_THROW(measure_budget_curves(*engine_, plan_, windows_, {}, {}, 0), InvalidArgument);
  EXPECT_THROW(measure_budget_curves(*engine_, plan_, windows_, {}, {96, 96}, 0), InvalidArgument);
  windows_[1].pop_back();
  EXPECT_THROW(measure_budget_curves(*engine_, plan_, windows_, {}, {96}, 0), InvalidArgument);
}

TEST(Calibration, LeastBudgetMustHoldFromThereOn) {
  const double increases[] = {0.04, 0.005, 0.02, 0.01, -0.001};
  EXPECT_EQ(least_within(increases, 0.01), 3U);  // not the lucky second
  EXPECT_EQ(least_within(increases, 0.02), 1U);
  EXPECT_EQ(least_within(increases, 0.05), 0U);
  EXPECT_EQ(least_within(increases, -0.002), std::nullopt);
  EXPECT_EQ(least_within(std::span<const double>(), 1), std::nullopt);
}

}  // namespace
}  // namespace quest::eval
