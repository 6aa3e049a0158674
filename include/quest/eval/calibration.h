// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "quest/engine.h"
#include "quest/eval/fidelity.h"
#include "quest/eval/perplexity.h"

namespace quest::eval {

/// What it costs a model that one KV head of one layer reads only a budget (SPEC S9.5).
struct BudgetCurves {
  std::int32_t num_layers = 0;
  std::int32_t num_kv_heads = 0;
  std::vector<std::int64_t> levels;  ///< budgets in tokens, ascending
  /// [num_layers, num_kv_heads, levels], by `measure_budget_curves` the mean KL(full ‖ sparse) of
  /// the next token's distribution, in nats, while this head alone selects pages and all others
  /// read everything; by `measure_mass_curves` the mean share of full attention's mass that is not
  /// read.
  std::vector<double> harm;

  std::span<const double> head(std::int64_t index) const {
    return std::span(harm).subspan(static_cast<std::size_t>(index) * levels.size(), levels.size());
  }
};

/// Mean KL(full ‖ sparse) of the next token's distribution under each policy, in nats, over the
/// windows, each of `plan.window_tokens()` tokens. Otherwise as `measure_budget_curves`.
std::optional<std::vector<double>> measure_policies(Engine& engine, const PerplexityPlan& plan,
                                                    const std::vector<std::vector<Token>>& windows,
                                                    std::span<const SelectionPolicy> policies,
                                                    const Progress& progress = {});

/// Measures the curves, mean over the windows, each of `plan.window_tokens()` tokens. The policy
/// says how pages are ranked; its budgets are not used. Once a level does no more harm than
/// `negligible`, larger ones of the head are taken to do the same. Nothing if `progress`, called
/// with steps done and steps at most, stopped it. The engine needs `perplexity_cache_tokens` for
/// one arm of context free; its policy is as before afterwards. Throws InvalidArgument for no
/// window, windows of another length, or levels that are not ascending.
std::optional<BudgetCurves> measure_budget_curves(Engine& engine, const PerplexityPlan& plan,
                                                  const std::vector<std::vector<Token>>& windows,
                                                  const SelectionPolicy& policy,
                                                  std::vector<std::int64_t> levels,
                                                  double negligible, const Progress& progress = {});

/// Measures what part of full attention's mass each KV head misses, while all heads read the same
/// budget: that of the query head in its group that misses most. One token a step; `plan.rows` is
/// not used. The engine of `fidelity` needs `Fidelity::cache_tokens`; otherwise as
/// `measure_budget_curves`.
std::optional<BudgetCurves> measure_mass_curves(Fidelity& fidelity, const PerplexityPlan& plan,
                                                const std::vector<std::vector<Token>>& windows,
                                                const SelectionPolicy& policy,
                                                std::vector<std::int64_t> levels,
                                                const Progress& progress = {});

/// The least level of each head [num_layers, num_kv_heads] whose harm is at most `most`; the
/// largest where there is none.
std::vector<std::int64_t> budgets_within(const BudgetCurves& curves, double most);

/// The budgets [num_layers, num_kv_heads], whole pages between the lowest and the highest level,
/// whose harm, added up over the heads, is least while they read `tokens` each on average or less.
/// Measured curves are noisy, so harm is taken to fall with the inverse of the budget, as it does
/// on the packaged model (docs/quality.md): harm = floor + gain / budget, the gain fitted to all
/// levels but the lowest. Budgets are then in proportion to the square roots of the gains.
std::vector<std::int64_t> allocate_budgets(const BudgetCurves& curves, double tokens,
                                           std::int32_t page_size);

/// Of increases of the perplexity at ascending budgets, the first from which on none is above the
/// target, so that one lucky measurement does not pass; nothing if the last is.
std::optional<std::size_t> least_within(std::span<const double> increases, double target);

}  // namespace quest::eval
