// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "attention/cuda/kernels/elements-inl.h"
#include "attention/cuda/kernels/rows-inl.h"
#include "attention/cuda/kernels/warp-inl.h"

// append and summarise: new keys and values into their pages, then the summaries of those pages.
// After a platform header.

namespace quest::cuda {

inline constexpr int kAppendThreads = 128;

/// Stores the key and value of every row. Threads take eight channels each: 16 bytes written.
template <class Element>
__global__ void __launch_bounds__(kAppendThreads) append(LayerArgs args) {
  const PoolShape& shape = args.shape;
  const std::int64_t pieces = shape.head_dim / 8;
  const std::int64_t work = args.counts->rows * shape.num_kv_heads * pieces;
  const std::int64_t step = static_cast<std::int64_t>(blocks_of_grid()) * kAppendThreads;
  for (std::int64_t i =
           static_cast<std::int64_t>(block_of_grid()) * kAppendThreads + thread_of_block();
       i < work; i += step) {
    const std::int64_t channel = i % pieces * 8;
    const auto head = static_cast<std::int32_t>(i / pieces % shape.num_kv_heads);
    const auto index = static_cast<std::int32_t>(i / pieces / shape.num_kv_heads);
    const Row& row = args.rows[index];
    const std::int32_t page = args.table[row.table + row.num_pages - 1];
    const std::int64_t to = page_offset(shape, page, head) +
                            static_cast<std::int64_t>(row.tail_tokens - 1) * shape.head_dim +
                            channel;
    const std::int64_t from = static_cast<std::int64_t>(head) * shape.head_dim + channel;
    const float* k = args.k + index * args.k_stride + from;
    const float* v = args.v + index * args.v_stride + from;
    *reinterpret_cast<uint4*>(args.pool.k + to) = narrow<Element>(k);
    *reinterpret_cast<uint4*>(args.pool.v + to) = narrow<Element>(v);
  }
}

/// Least and greatest key of one channel of a page; both NaN if a key is.
template <class Element>
__device__ inline void channel_bounds(const std::uint16_t* keys, std::int32_t tokens,
                                      std::int32_t stride, std::uint16_t& low,
                                      std::uint16_t& high) {
  std::int32_t least = order(keys[0]);
  std::int32_t most = least;
  for (std::int32_t t = 1; t < tokens; ++t) {
    const std::int32_t key = order(keys[static_cast<std::int64_t>(t) * stride]);
    least = key < least ? key : least;
    most = key > most ? key : most;
  }
  const bool nan = most > Element::kInf || least < ~Element::kInf;
  low = nan ? Element::kNaN : from_order(least);
  high = nan ? Element::kNaN : from_order(most);
}

// A key has at most 11 significant bits, and so has a scale; 127 has 7. So a quotient of two of
// them that is no integer (or no f16 number) is further from one than 2^-19 of itself: the
// divisions below, rounded to 24 bits, never reach one from the wrong side. Nor do they reach zero.

/// Least f16 scale with 127 · scale ≥ magnitude, that of a key; NaN if there is none that is
/// finite.
__device__ inline std::uint16_t q8_scale(float magnitude) {
  constexpr std::uint16_t kInfinity = 0x7C00;
  constexpr std::uint16_t kNan = 0x7E00;
  if (!(magnitude < __uint_as_float(0x7F800000U))) return kNan;
  const std::uint16_t bits = __half_as_ushort(__float2half_ru(magnitude / 127.0F));
  return bits < kInfinity ? bits : kNan;
}

/// Rounds the bounds of one channel outward (SPEC S7.6). A warp holds the 32 channels of one scale.
__device__ inline void store_q8_bounds(const LayerPool& pool, const PoolShape& shape,
                                       std::int64_t summary, std::int32_t channel, float low,
                                       float high) {
  // fmaxf drops a NaN: it is carried apart.
  const bool nan = low != low || high != high;
  const float infinity = __uint_as_float(0x7F800000U);
  const float magnitude = warp_max(nan ? infinity : fmaxf(fabsf(low), fabsf(high)));
  const std::uint16_t bits = q8_scale(magnitude);
  const float scale = __half2float(__ushort_as_half(bits));
  const float down = scale > 0 ? floorf(low / scale) : 0.0F;
  const float up = scale > 0 ? ceilf(high / scale) : 0.0F;
  std::int8_t* const out = pool.q8_summaries + summary * 2 * shape.head_dim;
  out[channel] = static_cast<std::int8_t>(down);
  out[shape.head_dim + channel] = static_cast<std::int8_t>(up);
  if (channel % kWarp == 0) {
    pool.summary_scales[summary * (shape.head_dim / kWarp) + channel / kWarp] = bits;
  }
}

/// Makes the summaries of the touched pages anew from their keys, at most a page of them: no
/// rounding adds up, and a page that was cut or recycled needs no other treatment (SPEC S2.2,
/// S2.4). Threads take one channel each.
template <class Element>
__global__ void summarise(LayerArgs args) {
  const PoolShape& shape = args.shape;
  const std::int64_t work = static_cast<std::int64_t>(args.counts->touched) * shape.num_kv_heads;
  const std::int32_t channel = thread_of_block();
  for (std::int64_t i = block_of_grid(); i < work; i += blocks_of_grid()) {
    const TouchedPage& page = args.touched[i / shape.num_kv_heads];
    const auto head = static_cast<std::int32_t>(i % shape.num_kv_heads);
    const std::uint16_t* keys = args.pool.k + page_offset(shape, page.page, head) + channel;
    std::uint16_t low = 0;
    std::uint16_t high = 0;
    channel_bounds<Element>(keys, page.tokens, shape.head_dim, low, high);
    const std::int64_t summary = summary_index(shape, page.page, head);
    if (shape.q8_summaries) {
      store_q8_bounds(args.pool, shape, summary, channel, Element::widen(low),
                      Element::widen(high));
    } else {
      std::uint16_t* const out = args.pool.summaries + summary * 2 * shape.head_dim;
      out[channel] = low;
      out[shape.head_dim + channel] = high;
    }
  }
}

}  // namespace quest::cuda
