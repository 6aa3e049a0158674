// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "json_output.h"

namespace quest::gpu_check {

/// Format number of the files that scripts/gpu_peers.py writes.
inline constexpr int kPeersFormat = 1;

/// What other programs took for full attention of one decode step, one layer, on the same GPU:
/// {"quest_peers", "device", "versions", "rows", "skipped"} as scripts/gpu_peers.py writes it. A
/// row has engine, context, batch, q_heads, kv_heads, head_dim, kv, seconds.
/// Throws FileError or InvalidArgument naming the file and the field; also if the rows were
/// measured on another GPU than `device`.
cli::Json read_peers(const std::string& path, const std::string& device);

/// Each peer beside our rows of the same shape (engine "dense" and "quest"): the peer's row, and
/// `dense_seconds`, `over_dense` (how many times ours is as fast), and `quest`, an array of
/// {budget, seconds, speedup} by rising budget. Null and empty where there is no such row.
cli::Json compare_peers(const cli::Json& peer_rows, const cli::Json& rows);

}  // namespace quest::gpu_check
