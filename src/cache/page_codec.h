// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "quest/paged_kv.h"

namespace quest {

// Pages and summaries as numbers, whatever type they are stored in. One page or summary of one
// head at a time; for code that is not in a hurry: the reference backend, diagnostics, tests.

/// keys: [head_dim, page_size], slots that were never written included.
void decode_keys(const CacheShape& shape, const std::byte* page, float* keys);
/// values: [page_size, head_dim].
void decode_values(const CacheShape& shape, const std::byte* page, float* values);
/// bounds: [2, head_dim], minimum and maximum.
void decode_summary(const CacheShape& shape, const std::byte* summary, float* bounds);

}  // namespace quest
