// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>

namespace quest::gpu_check {

/// Runs prefill, sparse and dense decode, forks and rollbacks on the GPU and on the reference
/// backend over a grid of shapes and policies. {"cases", "failed", "max_error", "rows"}: the rows
/// are the cases that failed.
nlohmann::json check_correctness(int device, bool quick);

}  // namespace quest::gpu_check
