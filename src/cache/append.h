// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "quest/paged_kv.h"

namespace quest {

/// Rounds keys and values of tokens [position, position + count) into the pages of one KV head.
/// k, v: [count, head_dim] float, rows `k_stride` / `v_stride` floats apart. `pages` is the page
/// table, long enough for the last token. No heap, no locks; different heads do not interfere.
void store_tokens(const PagedKv& layer, std::int32_t kv_head, std::span<const std::int32_t> pages,
                  std::int64_t position, std::int64_t count, const float* k, std::int64_t k_stride,
                  const float* v, std::int64_t v_stride);

/// Folds the stored keys of tokens [position, position + count) into the pages' summaries; the
/// first token of a page starts a fresh one (SPEC S2.2, S2.4).
void fold_tokens(const PagedKv& layer, std::int32_t kv_head, std::span<const std::int32_t> pages,
                 std::int64_t position, std::int64_t count);

/// Copies keys, values and summaries of all KV heads from one physical page to another.
void copy_page(const PagedKv& layer, std::int32_t from, std::int32_t to);

}  // namespace quest
