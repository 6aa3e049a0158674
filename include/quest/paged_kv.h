// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "quest/kv_type.h"

namespace quest {

/// Everything that fixes the size of a paged KV cache.
struct CacheShape {
  std::int32_t num_layers = 0;
  std::int32_t num_kv_heads = 0;
  std::int32_t head_dim = 0;    ///< 64, 80, 96, 128 or 256
  std::int32_t page_size = 16;  ///< tokens a page: 8, 16, 32 or 64
  KvType type = KvType::kF16;
  std::int64_t num_pages = 0;  ///< physical pages in the pool, shared by all layers

  /// Elements of one page of one head of one layer, K or V alone.
  std::int64_t page_elements() const { return std::int64_t{head_dim} * page_size; }
  /// Bytes of one page of one head of one layer, K or V alone.
  std::int64_t page_bytes() const {
    return page_elements() * static_cast<std::int64_t>(size_of(type));
  }
  /// Bytes of one page summary of one head of one layer (minimum and maximum).
  std::int64_t summary_bytes() const {
    return std::int64_t{2} * head_dim * static_cast<std::int64_t>(size_of(type));
  }
};

/// One layer of the paged cache as kernels see it: plain pointers and sizes, owned by `KvCache`.
/// A physical page index is the same in every layer.
struct PagedKv {
  std::byte* k = nullptr;          ///< [num_pages, num_kv_heads, head_dim, page_size]
  std::byte* v = nullptr;          ///< [num_pages, num_kv_heads, page_size, head_dim]
  std::byte* summaries = nullptr;  ///< [num_kv_heads, num_pages, 2, head_dim]: minimum, maximum
  CacheShape shape;

  // Offsets are 64-bit throughout: a pool may pass 2^32 elements.
  std::byte* k_page(std::int32_t page, std::int32_t kv_head) const {
    return k + (std::int64_t{page} * shape.num_kv_heads + kv_head) * shape.page_bytes();
  }
  std::byte* v_page(std::int32_t page, std::int32_t kv_head) const {
    return v + (std::int64_t{page} * shape.num_kv_heads + kv_head) * shape.page_bytes();
  }
  std::byte* summary(std::int32_t page, std::int32_t kv_head) const {
    return summaries + (std::int64_t{kv_head} * shape.num_pages + page) * shape.summary_bytes();
  }
};

}  // namespace quest
