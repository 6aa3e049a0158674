// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "bench/attention.h"
#include "bench/chart.h"
#include "bench/table.h"

namespace quest::cli {

/// How the figures of these tables came about.
inline constexpr const char* kAttentionNote =
    "Times are those of one layer in one step: medians over passes in which the engines take "
    "turns. "
    "Before each timed pass a read of the probe's buffer sweeps the caches. bandwidth %: bytes "
    "read "
    "in the median time, as a share of the best read bandwidth; best %: in the fastest pass.";

/// Every row: time, spread, stages, bytes, share of the read bandwidth.
Table attention_table(const std::vector<AttentionRow>& rows, double read_bandwidth);

/// The ratios of `attention_ratios`, each beside the dense arm's share.
Table ratio_table(const Json& ratios);

/// Microseconds a layer by context: one line for each engine and budget.
Chart time_chart(const std::vector<AttentionRow>& rows);

/// Microseconds a layer by context of full attention and of quest's stages at one budget.
Chart stage_chart(const std::vector<AttentionRow>& rows, std::int64_t budget);

}  // namespace quest::cli
