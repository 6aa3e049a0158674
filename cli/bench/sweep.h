// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "bench/attention.h"

namespace quest::cli {

/// What `quest bench sweep` measures, one layer each (SPEC S9.7).
struct SweepPlan {
  AttentionShape shape;  ///< context, batch and layers are set by the parts
  SelectionPolicy policy;
  std::int32_t repeat = 5;
  std::vector<std::int64_t> contexts;  ///< (a) by length, every budget that the length exceeds
  std::vector<std::int64_t> budgets;
  std::int64_t grid_context = 0;  ///< (b) page size × selected pages at this length
  std::vector<std::int64_t> page_sizes;
  std::vector<std::int64_t> pages;
  std::int64_t batch_context = 0;  ///< (c) sequences of this length, the first budget
  std::vector<std::int64_t> batches;
};

/// (d) Where selection begins to pay.
struct Crossover {
  std::int64_t budget = 0;
  /// The smallest measured length from which quest is faster than dense; nothing if it is faster
  /// at none.
  std::optional<std::int64_t> tokens;
  /// Every length measured in the search, with the fastest passes of the two engines.
  struct Trial {
    std::int64_t context = 0;
    double quest_seconds = 0;
    double dense_seconds = 0;
  };
  std::vector<Trial> trials;
};

struct SweepResult {
  std::vector<AttentionRow> lengths;
  std::vector<AttentionRow> grid;
  std::vector<AttentionRow> batches;
  std::vector<Crossover> crossovers;
};

/// Stops early after Ctrl-C, the result is then incomplete. Throws as `measure_attention`.
SweepResult run_sweep(const SweepPlan& plan, BandwidthProbe& probe, Workers& workers);

}  // namespace quest::cli
