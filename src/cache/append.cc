// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "cache/append.h"

#include <algorithm>
#include <cstring>

#include "cache/quantise.h"
#include "cache/token_pages.h"
#include "core/elements.h"

namespace quest {

namespace {

constexpr std::int64_t kMaxHeadDim = 256;
/// Tokens that are rounded together before they are transposed into the page; every page size is a
/// multiple. Small enough for the first-level cache, wide enough for one vector store.
constexpr std::int64_t kTileTokens = 8;

/// tile [tokens][head_dim] → page [head_dim][page_size], tokens at `slot` and after.
template <typename Bits>
void transpose(const std::byte* tile, std::int64_t tokens, std::int64_t head_dim,
               std::int64_t page_size, std::int64_t slot, std::byte* page) {
  const auto* in = reinterpret_cast<const Bits*>(tile);
  auto* out = reinterpret_cast<Bits*>(page) + slot;
  if (tokens == kTileTokens) {  // constant bounds let the compiler use shuffles
    for (std::int64_t j = 0; j < head_dim; ++j) {
      for (std::int64_t t = 0; t < kTileTokens; ++t) out[j * page_size + t] = in[t * head_dim + j];
    }
    return;
  }
  for (std::int64_t t = 0; t < tokens; ++t) {
    for (std::int64_t j = 0; j < head_dim; ++j) out[j * page_size + t] = in[t * head_dim + j];
  }
}

void store_plain_keys(const CacheShape& shape, std::byte* page, std::int64_t slot,
                      std::int64_t count, const float* k, std::int64_t stride) {
  alignas(64) std::byte tile[kTileTokens * kMaxHeadDim * sizeof(float)];
  const auto row_bytes = shape.head_dim * static_cast<std::int64_t>(size_of(shape.type));
  for (std::int64_t first = 0; first < count; first += kTileTokens) {
    const std::int64_t tokens = std::min(kTileTokens, count - first);
    for (std::int64_t t = 0; t < tokens; ++t) {
      encode(shape.type, k + (first + t) * stride, tile + t * row_bytes, shape.head_dim);
    }
    if (shape.type == KvType::kF32) {
      transpose<std::uint32_t>(tile, tokens, shape.head_dim, shape.page_size, slot + first, page);
    } else {
      transpose<std::uint16_t>(tile, tokens, shape.head_dim, shape.page_size, slot + first, page);
    }
  }
}

void store_plain_values(const CacheShape& shape, std::byte* page, std::int64_t slot,
                        std::int64_t count, const float* v, std::int64_t stride) {
  const auto row_bytes = shape.head_dim * static_cast<std::int64_t>(size_of(shape.type));
  for (std::int64_t t = 0; t < count; ++t) {
    encode(shape.type, v + t * stride, page + (slot + t) * row_bytes, shape.head_dim);
  }
}

constexpr std::int32_t kMaxScaleBlocks = kMaxHeadDim / kScaleBlock;

/// Places where one token of a q8_0 page keeps its scales.
struct ScaleColumn {
  ScaleColumn(const CacheShape& shape, std::byte* page, std::int64_t slot)
      : first(page + shape.page_elements() + slot * CacheShape::kScaleBytes),
        stride(std::int64_t{shape.page_size} * CacheShape::kScaleBytes),
        blocks(shape.scale_blocks()) {}

  void store(const std::uint16_t* scales) const {
    for (std::int32_t b = 0; b < blocks; ++b) {
      std::memcpy(first + b * stride, scales + b, sizeof *scales);
    }
  }

  std::byte* first;
  std::int64_t stride;
  std::int32_t blocks;
};

void store_quantised_keys(const CacheShape& shape, std::byte* page, std::int64_t slot,
                          std::int64_t count, const float* k, std::int64_t stride) {
  std::int8_t q[kMaxHeadDim];
  std::uint16_t scales[kMaxScaleBlocks];
  for (std::int64_t t = 0; t < count; ++t) {
    quantise_row(k + t * stride, shape.head_dim, q, scales);
    std::byte* pairs = page + 2 * (slot + t);
    for (std::int64_t j = 0; j < shape.head_dim; j += 2) {
      std::memcpy(pairs, q + j, 2);
      pairs += std::int64_t{2} * shape.page_size;
    }
    ScaleColumn(shape, page, slot + t).store(scales);
  }
}

void store_quantised_values(const CacheShape& shape, std::byte* page, std::int64_t slot,
                            std::int64_t count, const float* v, std::int64_t stride) {
  std::uint16_t scales[kMaxScaleBlocks];
  for (std::int64_t t = 0; t < count; ++t) {
    auto* q = reinterpret_cast<std::int8_t*>(page + (slot + t) * shape.head_dim);
    quantise_row(v + t * stride, shape.head_dim, q, scales);
    ScaleColumn(shape, page, slot + t).store(scales);
  }
}

}  // namespace

void store_tokens(const PagedKv& layer, std::int32_t kv_head, std::span<const std::int32_t> pages,
                  std::int64_t position, std::int64_t count, const float* k, std::int64_t k_stride,
                  const float* v, std::int64_t v_stride) {
  const CacheShape& shape = layer.shape;
  const bool quantised = shape.type == KvType::kQ8_0;
  const auto store_keys = quantised ? store_quantised_keys : store_plain_keys;
  const auto store_values = quantised ? store_quantised_values : store_plain_values;
  for_each_page(shape.page_size, pages, position, count,
                [&](std::int32_t page, std::int64_t slot, std::int64_t slots, std::int64_t done) {
                  store_keys(shape, layer.k_page(page, kv_head), slot, slots, k + done * k_stride,
                             k_stride);
                  store_values(shape, layer.v_page(page, kv_head), slot, slots, v + done * v_stride,
                               v_stride);
                });
}

void copy_page(const PagedKv& layer, std::int32_t from, std::int32_t to) {
  const CacheShape& shape = layer.shape;
  const auto bytes = static_cast<std::size_t>(shape.page_bytes());
  for (std::int32_t head = 0; head < shape.num_kv_heads; ++head) {
    std::memcpy(layer.k_page(to, head), layer.k_page(from, head), bytes);
    std::memcpy(layer.v_page(to, head), layer.v_page(from, head), bytes);
    std::memcpy(layer.summary(to, head), layer.summary(from, head),
                static_cast<std::size_t>(shape.summary_bytes()));
  }
}

}  // namespace quest
