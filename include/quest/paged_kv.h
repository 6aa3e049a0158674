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
  SummaryType summary_type = SummaryType::kPlain;

  /// Elements of one page of one head of one layer, K or V alone.
  std::int64_t page_elements() const { return std::int64_t{head_dim} * page_size; }
  /// Scales of one token, or of one summary, where the type has any.
  std::int32_t scale_blocks() const { return (head_dim + kScaleBlock - 1) / kScaleBlock; }
  /// Bytes of one page of one head of one layer, K or V alone, scales included.
  std::int64_t page_bytes() const {
    const std::int64_t scales = type == KvType::kQ8_0 ? scale_blocks() * page_size : 0;
    return page_elements() * static_cast<std::int64_t>(size_of(type)) + scales * kScaleBytes;
  }
  /// Bytes of one token's values of one head of one layer, scales included.
  std::int64_t value_bytes() const { return page_bytes() / page_size; }
  /// Element type of plain summaries.
  KvType plain_summary() const { return type == KvType::kQ8_0 ? KvType::kF16 : type; }
  /// Bytes of one page summary of one head of one layer (minimum and maximum), scales included.
  std::int64_t summary_bytes() const {
    const std::int64_t elements = std::int64_t{2} * head_dim;
    switch (summary_type) {
      case SummaryType::kPlain:
        break;
      case SummaryType::kQ8:
        return elements + scale_blocks() * kScaleBytes;
      case SummaryType::kQ4:
        return head_dim + std::int64_t{2} * scale_blocks() * kScaleBytes;
    }
    return elements * static_cast<std::int64_t>(size_of(plain_summary()));
  }

  static constexpr std::int64_t kScaleBytes = 2;
};

/// One layer of the paged cache as kernels see it: plain pointers and sizes, owned by `KvCache`.
/// A physical page index is the same in every layer. Pages of one head that follow each other in
/// the pool follow each other in memory: a head that reads many of them reads one stream.
///
/// Of a q8_0 cache, one page of one head holds K as int8 [head_dim / 2, page_size, 2] (pairs of
/// channels side by side, for pairwise dot products), V as int8 [page_size, head_dim], each
/// followed by its scales, f16 [scale_blocks, page_size]. A q8 summary is int8 [2, head_dim]
/// followed by f16 [scale_blocks], one scale for minimum and maximum alike.
///
/// A q4 summary is one byte a channel, [head_dim], followed by f16 [2, scale_blocks]: scales of the
/// centres, scales of the half-widths. The upper five bits of a byte are the channel's centre c, a
/// signed integer in [-15, 15], the lower three its half-width h in [0, 7]; the bounds are
/// c · scale ∓ h · scale'.
struct PagedKv {
  std::byte* k = nullptr;          ///< [num_kv_heads, num_pages, head_dim, page_size]
  std::byte* v = nullptr;          ///< [num_kv_heads, num_pages, page_size, head_dim]
  std::byte* summaries = nullptr;  ///< [num_kv_heads, num_pages, 2, head_dim]: minimum, maximum
  CacheShape shape;

  // Offsets are 64-bit throughout: a pool may pass 2^32 elements.
  std::byte* k_page(std::int32_t page, std::int32_t kv_head) const {
    return k + (std::int64_t{kv_head} * shape.num_pages + page) * shape.page_bytes();
  }
  std::byte* v_page(std::int32_t page, std::int32_t kv_head) const {
    return v + (std::int64_t{kv_head} * shape.num_pages + page) * shape.page_bytes();
  }
  std::byte* summary(std::int32_t page, std::int32_t kv_head) const {
    return summaries + (std::int64_t{kv_head} * shape.num_pages + page) * shape.summary_bytes();
  }
};

}  // namespace quest
