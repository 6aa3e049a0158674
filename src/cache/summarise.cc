// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "cache/append.h"
#include "cache/quantise.h"
#include "cache/token_pages.h"
#include "core/elements.h"

namespace quest {

namespace {

constexpr std::int64_t kMaxHeadDim = 256;
constexpr std::int64_t kMaxPageSize = 64;

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

/// Minimum and maximum of every channel as numbers; NaN where a key is NaN.
struct Bounds {
  float low[kMaxHeadDim];
  float high[kMaxHeadDim];
};

template <typename Type>
void plain_bounds(const CacheShape& shape, const std::byte* page, std::int64_t tokens,
                  Bounds& bounds) {
  using Int = typename Type::Int;
  alignas(64) std::byte summary[2 * kMaxHeadDim * sizeof(Int)];
  CacheShape plain = shape;
  plain.summary_type = SummaryType::kPlain;
  fold_page<Type>(plain, page, 0, tokens, summary);
  decode(shape.type, summary, bounds.low, shape.head_dim);
  decode(shape.type, summary + shape.head_dim * static_cast<std::int64_t>(sizeof(Int)), bounds.high,
         shape.head_dim);
}

/// One channel of a q8_0 page: a NaN scale makes both bounds NaN.
void quantised_bounds(const CacheShape& shape, const std::byte* page, std::int64_t tokens,
                      Bounds& bounds) {
  const auto* q = reinterpret_cast<const std::int8_t*>(page);
  const std::int64_t size = shape.page_size;
  float scale[kMaxPageSize];
  bool nan = false;
  for (std::int64_t j = 0; j < shape.head_dim; ++j) {
    if (j % kScaleBlock == 0) {
      decode(KvType::kF16,
             page + shape.page_elements() + j / kScaleBlock * size * CacheShape::kScaleBytes, scale,
             tokens);
      nan = std::any_of(scale, scale + tokens, [](float s) { return std::isnan(s); });
    }
    const std::int8_t* keys = q + (j / 2 * size * 2) + j % 2;
    float low = std::numeric_limits<float>::infinity();
    float high = -low;
    for (std::int64_t t = 0; t < tokens; ++t) {
      const float key = scale[t] * static_cast<float>(keys[2 * t]);
      low = std::min(low, key);
      high = std::max(high, key);
    }
    bounds.low[j] = nan ? std::numeric_limits<float>::quiet_NaN() : low;
    bounds.high[j] = nan ? std::numeric_limits<float>::quiet_NaN() : high;
  }
}

void page_bounds(const CacheShape& shape, const std::byte* page, std::int64_t tokens,
                 Bounds& bounds) {
  switch (shape.type) {
    case KvType::kF32:
      return plain_bounds<F32>(shape, page, tokens, bounds);
    case KvType::kF16:
      return plain_bounds<F16>(shape, page, tokens, bounds);
    case KvType::kBF16:
      return plain_bounds<BF16>(shape, page, tokens, bounds);
    case KvType::kQ8_0:
      return quantised_bounds(shape, page, tokens, bounds);
  }
}

/// Writes the summary of the page's first `tokens` keys anew. Rounded summaries are made this way:
/// folding into one that is rounded already would round again, and again, and a summary would
/// depend on how its tokens arrived.
void rebuild_page(const CacheShape& shape, const std::byte* page, std::int64_t tokens,
                  std::byte* summary) {
  Bounds bounds;
  page_bounds(shape, page, tokens, bounds);
  if (shape.summary_type != SummaryType::kPlain) {
    std::uint16_t scales[2 * kMaxHeadDim / kScaleBlock];
    std::int64_t bytes = 0;
    if (shape.summary_type == SummaryType::kQ8) {
      quantise_summary(bounds.low, bounds.high, shape.head_dim,
                       reinterpret_cast<std::int8_t*>(summary), scales);
      bytes = std::int64_t{2} * shape.head_dim;
    } else {
      quantise_summary_q4(bounds.low, bounds.high, shape.head_dim,
                          reinterpret_cast<std::uint8_t*>(summary), scales);
      bytes = shape.head_dim;
    }
    std::memcpy(summary + bytes, scales, static_cast<std::size_t>(shape.summary_bytes() - bytes));
    return;
  }
  auto* low = reinterpret_cast<std::uint16_t*>(summary);
  auto* high = low + shape.head_dim;
  for (std::int32_t j = 0; j < shape.head_dim; ++j) {
    low[j] = f16_at_most(bounds.low[j]);
    high[j] = f16_at_least(bounds.high[j]);
  }
}

void fold_page(const CacheShape& shape, const std::byte* page, std::int64_t slot,
               std::int64_t slots, std::byte* summary) {
  if (shape.summary_type != SummaryType::kPlain) {
    return rebuild_page(shape, page, slot + slots, summary);
  }
  switch (shape.type) {
    case KvType::kF32:
      return fold_page<F32>(shape, page, slot, slots, summary);
    case KvType::kF16:
      return fold_page<F16>(shape, page, slot, slots, summary);
    case KvType::kBF16:
      return fold_page<BF16>(shape, page, slot, slots, summary);
    case KvType::kQ8_0:
      return rebuild_page(shape, page, slot + slots, summary);
  }
}

}  // namespace

void fold_tokens(const PagedKv& layer, std::int32_t kv_head, std::span<const std::int32_t> pages,
                 std::int64_t position, std::int64_t count) {
  for_each_page(layer.shape.page_size, pages, position, count,
                [&](std::int32_t page, std::int64_t slot, std::int64_t slots, std::int64_t) {
                  fold_page(layer.shape, layer.k_page(page, kv_head), slot, slots,
                            layer.summary(page, kv_head));
                });
}

}  // namespace quest
