// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "cache/append.h"

#include <algorithm>
#include <cstring>

#include "core/elements.h"

namespace quest {

namespace {

constexpr std::int64_t kMaxHeadDim = 256;
/// Tokens that are rounded together before they are transposed into the page; every page size is a
/// multiple. Small enough for the first-level cache, wide enough for one vector store.
constexpr std::int64_t kTileTokens = 8;

/// Calls `body(page, first_slot, slots, done)` for each page that the tokens touch.
template <typename Body>
void for_each_page(std::int32_t page_size, std::span<const std::int32_t> pages,
                   std::int64_t position, std::int64_t count, const Body& body) {
  for (std::int64_t done = 0; done < count;) {
    const std::int64_t slot = (position + done) % page_size;
    const std::int64_t slots = std::min(count - done, page_size - slot);
    body(pages[(position + done) / page_size], slot, slots, done);
    done += slots;
  }
}

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

void store_keys(const CacheShape& shape, std::byte* page, std::int64_t slot, std::int64_t count,
                const float* k, std::int64_t stride) {
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

void store_values(const CacheShape& shape, std::byte* page, std::int64_t slot, std::int64_t count,
                  const float* v, std::int64_t stride) {
  const auto row_bytes = shape.head_dim * static_cast<std::int64_t>(size_of(shape.type));
  for (std::int64_t t = 0; t < count; ++t) {
    encode(shape.type, v + t * stride, page + (slot + t) * row_bytes, shape.head_dim);
  }
}

/// Bit patterns of one element type as integers that compare like the numbers do: minus zero below
/// plus zero, NaN of either sign beyond the infinities. The map is its own inverse.
struct HalfBits {
  using Int = std::int16_t;
  static Int order(Int bits) { return static_cast<Int>(bits ^ ((bits >> 15) & Int{0x7FFF})); }
};
struct FloatBits {
  using Int = std::int32_t;
  static Int order(Int bits) { return bits ^ ((bits >> 31) & 0x7FFFFFFF); }
};

/// Largest ordered integer that is not NaN: +inf; order(-inf) mirrors it.
struct F32 : FloatBits {
  static constexpr Int kInf = 0x7F800000, kNaN = 0x7FC00000;
};
struct F16 : HalfBits {
  static constexpr Int kInf = 0x7C00, kNaN = 0x7E00;
};
struct BF16 : HalfBits {
  static constexpr Int kInf = 0x7F80, kNaN = 0x7FC0;
};

template <typename Int>
struct Range {
  Int low;
  Int high;
};

template <typename Type>
Range<typename Type::Int> range_of(const typename Type::Int* keys, std::int64_t count) {
  using Int = typename Type::Int;
  Range<Int> range{Type::order(keys[0]), Type::order(keys[0])};
  for (std::int64_t t = 1; t < count; ++t) {
    const Int key = Type::order(keys[t]);
    range.low = std::min(range.low, key);
    range.high = std::max(range.high, key);
  }
  return range;
}

/// Folds keys [head_dim][page_size], slots [slot, slot + slots), into summary [2][head_dim]. The
/// stored bits are compared themselves, so the result does not depend on the order or grouping of
/// the folds. A NaN key makes both ends NaN, to be met by whoever scores the page (SPEC S4.8).
template <typename Type>
void fold_page(const CacheShape& shape, const std::byte* page, std::int64_t slot,
               std::int64_t slots, std::byte* summary) {
  using Int = typename Type::Int;
  const auto* keys = reinterpret_cast<const Int*>(page) + slot;
  auto* low = reinterpret_cast<Int*>(summary);
  auto* high = low + shape.head_dim;
  for (std::int64_t j = 0; j < shape.head_dim; ++j) {
    Range<Int> range = range_of<Type>(keys + j * shape.page_size, slots);
    if (slot > 0) {
      range.low = std::min(range.low, Type::order(low[j]));
      range.high = std::max(range.high, Type::order(high[j]));
    }
    if (range.high > Type::kInf || range.low < static_cast<Int>(~Type::kInf)) {
      low[j] = high[j] = Type::kNaN;
    } else {
      low[j] = Type::order(range.low);
      high[j] = Type::order(range.high);
    }
  }
}

}  // namespace

void store_tokens(const PagedKv& layer, std::int32_t kv_head, std::span<const std::int32_t> pages,
                  std::int64_t position, std::int64_t count, const float* k, std::int64_t k_stride,
                  const float* v, std::int64_t v_stride) {
  const CacheShape& shape = layer.shape;
  for_each_page(shape.page_size, pages, position, count,
                [&](std::int32_t page, std::int64_t slot, std::int64_t slots, std::int64_t done) {
                  store_keys(shape, layer.k_page(page, kv_head), slot, slots, k + done * k_stride,
                             k_stride);
                  store_values(shape, layer.v_page(page, kv_head), slot, slots, v + done * v_stride,
                               v_stride);
                });
}

void fold_tokens(const PagedKv& layer, std::int32_t kv_head, std::span<const std::int32_t> pages,
                 std::int64_t position, std::int64_t count) {
  const CacheShape& shape = layer.shape;
  for_each_page(shape.page_size, pages, position, count,
                [&](std::int32_t page, std::int64_t slot, std::int64_t slots, std::int64_t) {
                  const std::byte* keys = layer.k_page(page, kv_head);
                  std::byte* summary = layer.summary(page, kv_head);
                  switch (shape.type) {
                    case KvType::kF32:
                      return fold_page<F32>(shape, keys, slot, slots, summary);
                    case KvType::kF16:
                      return fold_page<F16>(shape, keys, slot, slots, summary);
                    case KvType::kBF16:
                      return fold_page<BF16>(shape, keys, slot, slots, summary);
                  }
                });
}

void copy_page(const PagedKv& layer, std::int32_t from, std::int32_t to) {
  const CacheShape& shape = layer.shape;
  // The heads of one page lie side by side.
  const auto bytes = static_cast<std::size_t>(shape.num_kv_heads * shape.page_bytes());
  std::memcpy(layer.k_page(to, 0), layer.k_page(from, 0), bytes);
  std::memcpy(layer.v_page(to, 0), layer.v_page(from, 0), bytes);
  for (std::int32_t head = 0; head < shape.num_kv_heads; ++head) {
    std::memcpy(layer.summary(to, head), layer.summary(from, head),
                static_cast<std::size_t>(shape.summary_bytes()));
  }
}

}  // namespace quest
