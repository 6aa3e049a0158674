// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "calibration_candidates.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <utility>

#include "quest/error.h"

namespace quest::cli {
namespace {

double mean(const std::vector<std::int64_t>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

/// The table beside a uniform one.
Candidate candidate(const SelectionPolicy& policy, std::vector<std::int64_t> table) {
  const auto budget = static_cast<std::int64_t>(std::llround(mean(table)));
  Candidate made;
  made.calibrated.name = std::to_string(budget);
  made.calibrated.policy = policy;
  made.calibrated.policy.budget = budget;
  made.uniform = made.calibrated;
  made.uniform.name += " uniform";
  made.uniform.policy.budget_table.assign(table.size(), budget);
  made.calibrated.policy.budget_table = std::move(table);
  return made;
}

}  // namespace

std::vector<std::int64_t> budget_levels(const EngineOptions& engine,
                                        const eval::PerplexityPlan& plan) {
  const std::int64_t page = engine.page_size;
  const auto pages = [page](std::int64_t tokens) { return (tokens + page - 1) / page; };
  const std::int64_t forced = (pages(engine.policy.sinks) + pages(engine.policy.window) + 1) * page;
  std::vector<std::int64_t> levels;
  for (std::int64_t level = std::max(forced, 2 * page); level <= plan.context * 4 / 5; level *= 2) {
    levels.push_back(level);
  }
  if (levels.size() >= 2) return levels;
  throw InvalidArgument("--context " + std::to_string(plan.context) +
                        " is too short for pages of " + std::to_string(page) +
                        " tokens; give at least " +
                        std::to_string(5 * std::max(forced, 2 * page) / 2));
}

std::vector<Candidate> candidates_by_total(const SelectionPolicy& policy, std::int32_t page_size,
                                           const eval::BudgetCurves& curves,
                                           std::optional<std::int64_t> budget,
                                           std::optional<std::size_t>& chosen) {
  std::vector<double> totals;
  const auto most = static_cast<double>(curves.levels.back());
  for (double tokens = std::sqrt(2.0) * static_cast<double>(curves.levels.front()); tokens < most;
       tokens *= std::sqrt(2.0)) {
    totals.push_back(tokens);
  }
  if (budget) totals.push_back(static_cast<double>(*budget));
  std::sort(totals.begin(), totals.end());
  std::vector<Candidate> result;
  for (const double tokens : totals) {
    Candidate made = candidate(policy, eval::allocate_budgets(curves, tokens, page_size));
    const bool more =
        result.empty() || made.calibrated.policy.budget > result.back().calibrated.policy.budget;
    if (more) result.push_back(std::move(made));
    if (budget && tokens == static_cast<double>(*budget)) chosen = result.size() - 1;
  }
  return result;
}

std::vector<Candidate> candidates_by_mass(const SelectionPolicy& policy,
                                          const eval::BudgetCurves& curves, double mass,
                                          std::optional<std::size_t>& chosen) {
  std::vector<double> masses{0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, mass};
  std::sort(masses.begin(), masses.end());
  std::vector<Candidate> result;
  for (const double each : masses) {
    Candidate made = candidate(policy, eval::budgets_within(curves, 1 - each));
    for (std::int64_t& entry : made.calibrated.policy.budget_table) {
      if (entry == curves.levels.back()) entry = SelectionPolicy::kDenseBudget;
    }
    const std::int64_t budget = made.calibrated.policy.budget;
    if (result.empty() || budget > result.back().calibrated.policy.budget) {
      result.push_back(std::move(made));
    }
    if (each == mass) chosen = result.size() - 1;
  }
  return result;
}

}  // namespace quest::cli
