// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>

#include "quest/attention.h"

namespace quest::gpu_check {

using MakeBackend =
    std::function<std::unique_ptr<AttentionBackend>(KvCache& cache, SelectionPolicy policy)>;

/// Runs prefill, sparse and dense decode, forks and rollbacks on the backend and on the reference
/// over a grid of shapes and policies, and rows of so many pages that several blocks select.
/// {"cases", "failed", "max_error", "tolerance", "rows"}: the rows are the cases that failed.
nlohmann::json check_correctness(const MakeBackend& make, bool quick);

}  // namespace quest::gpu_check
