// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "calibration_candidates.h"
#include "json_output.h"
#include "quest/eval/perplexity.h"

namespace quest::cli {

/// A candidate and what it did on windows that calibration has not seen.
struct Checked {
  Candidate candidate;
  eval::PerplexitySummary calibrated;
  eval::PerplexitySummary uniform;
};

/// Nothing if no budget that leaves anything out is within the target.
std::optional<std::size_t> choose(const std::vector<Checked>& checked, double target);

/// Why `choose` chose nothing, with what the budgets did, so that a long run was not for nothing.
std::string out_of_reach(const std::vector<Checked>& checked, double target);

/// Increase, KL and bytes of the calibrated budgets and of uniform ones.
Json check_fields(const Checked& checked);
std::string as_table(const std::vector<Checked>& checked, std::size_t chosen);

/// [num_layers][num_kv_heads].
Json by_layer(const std::vector<std::int64_t>& values, std::int32_t num_kv_heads);
Json curve_fields(const eval::BudgetCurves& curves, bool by_mass);

/// Three digits, so that files stay small.
double rounded(double value);

}  // namespace quest::cli
