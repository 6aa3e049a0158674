// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "quest/engine.h"
#include "quest/eval/arm.h"
#include "quest/eval/calibration.h"

namespace quest::cli {

/// Budgets from the forced pages up, each twice the one before. None reads everything: that alone
/// has no divergence at all, while any other budget has that of rounding, and the step between the
/// two would look like a gain. Throws InvalidArgument for a context that leaves fewer than two.
std::vector<std::int64_t> budget_levels(const EngineOptions& engine,
                                        const eval::PerplexityPlan& plan);

/// The calibrated budgets and the same bytes spread evenly.
struct Candidate {
  eval::Arm calibrated;
  eval::Arm uniform;
};

/// For totals from the lowest level to the highest, each by the square root of two larger, and for
/// the budget that is asked for, at `chosen`.
std::vector<Candidate> candidates_by_total(const SelectionPolicy& policy, std::int32_t page_size,
                                           const eval::BudgetCurves& curves,
                                           std::optional<std::int64_t> budget,
                                           std::optional<std::size_t>& chosen);

/// For the mass that is asked for, at `chosen`, and for others, so that other budgets have tables.
/// The last level of the curves reads everything.
std::vector<Candidate> candidates_by_mass(const SelectionPolicy& policy,
                                          const eval::BudgetCurves& curves, double mass,
                                          std::optional<std::size_t>& chosen);

}  // namespace quest::cli
