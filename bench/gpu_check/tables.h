// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>

namespace quest::gpu_check {

/// A captured step, replayed over growing contexts, against the same step launched by hand:
/// {"replays", "failed", "max_error"}.
nlohmann::json check_graph(int device);

/// One layer of decode over context x budget x batch x heads, Quest beside full attention, as time
/// by stage, time of the replayed graph, and bytes read a second beside the device's own bandwidth,
/// those of the whole and those of score and attend.
/// `seconds` limits the whole; combinations that find no time or memory are listed as skipped.
nlohmann::json measure_tables(int device, double seconds);

}  // namespace quest::gpu_check
