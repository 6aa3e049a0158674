// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ggml.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "quest/kv_cache.h"

namespace quest::testing {

/// One stored element as a number, converted one by one and not by the code under test.
inline float number_at(KvType type, const std::byte* data, std::int64_t index) {
  if (type == KvType::kF32) {
    float value = 0;
    std::memcpy(&value, data + index * 4, 4);
    return value;
  }
  std::uint16_t bits = 0;
  std::memcpy(&bits, data + index * 2, 2);
  if (type == KvType::kF16) return ggml_fp16_to_fp32(bits);
  return ggml_bf16_to_fp32(ggml_bf16_t{bits});
}

/// A float after rounding to `type`, as a number.
inline float rounded(KvType type, float value) {
  switch (type) {
    case KvType::kF32:
      return value;
    case KvType::kF16:
      return ggml_fp16_to_fp32(ggml_fp32_to_fp16(value));
    case KvType::kBF16:
      return ggml_bf16_to_fp32(ggml_fp32_to_bf16(value));
    case KvType::kQ8_0:
      break;  // depends on the rest of the row
  }
  return value;
}

/// Equal bit for bit: tells the zeros apart, takes a NaN for itself.
inline bool same_bits(float a, float b) { return std::memcmp(&a, &b, sizeof(float)) == 0; }

/// Integer `index` of a quantised page or summary, times its scale.
inline float quantised_at(const std::byte* data, std::int64_t index, std::int64_t elements,
                          std::int64_t scale) {
  return static_cast<float>(static_cast<std::int8_t>(data[index])) *
         number_at(KvType::kF16, data + elements, scale);
}

inline float key_at(const PagedKv& kv, std::int32_t page, std::int32_t head, std::int64_t slot,
                    std::int64_t channel) {
  const std::byte* data = kv.k_page(page, head);
  const std::int64_t size = kv.shape.page_size;
  if (kv.shape.type == KvType::kQ8_0) {
    return quantised_at(data, (channel / 2 * size + slot) * 2 + channel % 2,
                        kv.shape.page_elements(), channel / kScaleBlock * size + slot);
  }
  return number_at(kv.shape.type, data, channel * size + slot);
}

inline float value_at(const PagedKv& kv, std::int32_t page, std::int32_t head, std::int64_t slot,
                      std::int64_t channel) {
  const std::byte* data = kv.v_page(page, head);
  const std::int64_t index = slot * kv.shape.head_dim + channel;
  if (kv.shape.type == KvType::kQ8_0) {
    return quantised_at(data, index, kv.shape.page_elements(),
                        channel / kScaleBlock * kv.shape.page_size + slot);
  }
  return number_at(kv.shape.type, data, index);
}

/// Number `index` of a summary [2, head_dim].
inline float bound_at(const PagedKv& kv, std::int32_t page, std::int32_t head, std::int64_t index) {
  const std::byte* data = kv.summary(page, head);
  const std::int64_t d = kv.shape.head_dim;
  if (kv.shape.summary_type == SummaryType::kQ8) {
    return quantised_at(data, index, 2 * d, index % d / kScaleBlock);
  }
  if (kv.shape.summary_type == SummaryType::kQ4) {
    const auto byte = static_cast<std::uint8_t>(data[index % d]);
    const int centre = byte / 8 - (byte >= 128 ? 32 : 0);
    const int half = byte % 8;
    const std::int64_t block = index % d / kScaleBlock;
    const float middle = static_cast<float>(centre) * number_at(KvType::kF16, data + d, block);
    const float reach = static_cast<float>(half) *
                        number_at(KvType::kF16, data + d, kv.shape.scale_blocks() + block);
    return index < d ? middle - reach : middle + reach;
  }
  return number_at(kv.shape.plain_summary(), data, index);
}

inline float minimum_at(const PagedKv& kv, std::int32_t page, std::int32_t head,
                        std::int64_t channel) {
  return bound_at(kv, page, head, channel);
}

inline float maximum_at(const PagedKv& kv, std::int32_t page, std::int32_t head,
                        std::int64_t channel) {
  return bound_at(kv, page, head, kv.shape.head_dim + channel);
}

/// Order of numbers with minus zero below plus zero.
inline bool below(float a, float b) {
  return a < b || (a == b && std::signbit(a) && !std::signbit(b));
}

/// Minimum and maximum of one channel over the first `tokens` slots, from the stored keys.
struct Extremes {
  float low = std::numeric_limits<float>::infinity();
  float high = -std::numeric_limits<float>::infinity();
  void add(float key) {
    if (below(key, low)) low = key;
    if (below(high, key)) high = key;
  }
};

inline CacheShape small_shape(std::int64_t num_pages, std::int32_t page_size = 16,
                              KvType type = KvType::kF16) {
  CacheShape shape;
  shape.num_layers = 2;
  shape.num_kv_heads = 2;
  shape.head_dim = 64;
  shape.page_size = page_size;
  shape.type = type;
  shape.num_pages = num_pages;
  return shape;
}

/// Fills keys, values and summaries of the whole pool with one byte; 0xFF is NaN in every type.
inline void poison(const KvCache& cache, int byte) {
  const CacheShape& shape = cache.shape();
  const std::int64_t rows = shape.num_pages * shape.num_kv_heads;
  for (std::int32_t l = 0; l < shape.num_layers; ++l) {
    const PagedKv kv = cache.layer(l);
    std::memset(kv.k, byte, static_cast<std::size_t>(rows * shape.page_bytes()));
    std::memset(kv.v, byte, static_cast<std::size_t>(rows * shape.page_bytes()));
    std::memset(kv.summaries, byte, static_cast<std::size_t>(rows * shape.summary_bytes()));
  }
}

/// Deterministic keys and values [tokens, head_dim].
struct Rows {
  Rows(std::int64_t tokens, std::int64_t head_dim, unsigned seed)
      : k(static_cast<std::size_t>(tokens * head_dim)), v(k.size()) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal(0, 3);
    for (float& x : k) x = normal(random);
    for (float& x : v) x = normal(random);
  }
  std::vector<float> k;
  std::vector<float> v;
};

/// Reserves `count` tokens and writes the same rows, from row `first` on, to all layers and heads.
inline void write(KvCache& cache, SequenceId id, const Rows& rows, std::int64_t first,
                  std::int64_t count) {
  const CacheShape& shape = cache.shape();
  const std::int64_t position = cache.length(id);
  cache.reserve(id, count);
  for (std::int32_t l = 0; l < shape.num_layers; ++l) {
    for (std::int32_t h = 0; h < shape.num_kv_heads; ++h) {
      cache.append(l, h, id, position, count, rows.k.data() + first * shape.head_dim,
                   shape.head_dim, rows.v.data() + first * shape.head_dim, shape.head_dim);
      cache.summarise(l, h, id, position, count);
    }
  }
}

/// Channels, over all pages, layers and heads, whose summary is not the brute-force one of the
/// sequence's stored keys, bit for bit.
inline std::int64_t wrong_summaries(const KvCache& cache, SequenceId id) {
  const CacheShape& shape = cache.shape();
  const auto pages = cache.pages(id);
  std::int64_t wrong = 0;
  for (std::int32_t l = 0; l < shape.num_layers; ++l) {
    const PagedKv kv = cache.layer(l);
    for (std::size_t p = 0; p < pages.size(); ++p) {
      const std::int64_t start = static_cast<std::int64_t>(p) * shape.page_size;
      const std::int64_t tokens = std::min<std::int64_t>(shape.page_size, cache.length(id) - start);
      for (std::int32_t h = 0; h < shape.num_kv_heads; ++h) {
        for (std::int64_t j = 0; j < shape.head_dim; ++j) {
          Extremes extremes;
          for (std::int64_t t = 0; t < tokens; ++t) extremes.add(key_at(kv, pages[p], h, t, j));
          wrong += !same_bits(extremes.low, minimum_at(kv, pages[p], h, j)) ||
                   !same_bits(extremes.high, maximum_at(kv, pages[p], h, j));
        }
      }
    }
  }
  return wrong;
}

/// Stored keys and values of the sequence that differ from `rows` [length] rounded.
inline std::int64_t wrong_elements(const KvCache& cache, SequenceId id, const Rows& rows) {
  const CacheShape& shape = cache.shape();
  const auto pages = cache.pages(id);
  std::int64_t wrong = 0;
  for (std::int32_t l = 0; l < shape.num_layers; ++l) {
    const PagedKv kv = cache.layer(l);
    for (std::int64_t t = 0; t < cache.length(id); ++t) {
      const std::int32_t page = pages[t / shape.page_size];
      const std::int64_t slot = t % shape.page_size;
      for (std::int32_t h = 0; h < shape.num_kv_heads; ++h) {
        for (std::int64_t j = 0; j < shape.head_dim; ++j) {
          const auto at = static_cast<std::size_t>(t * shape.head_dim + j);
          wrong += !same_bits(key_at(kv, page, h, slot, j), rounded(shape.type, rows.k[at])) ||
                   !same_bits(value_at(kv, page, h, slot, j), rounded(shape.type, rows.v[at]));
        }
      }
    }
  }
  return wrong;
}

}  // namespace quest::testing
