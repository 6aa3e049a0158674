// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "attention/cuda/kernels/elements-inl.h"
#include "attention/cuda/kernels/rows-inl.h"
#include "attention/cuda/kernels/warp-inl.h"

// append and summarise: new keys and values into their pages, and the summaries of those pages.
// After a platform header.

namespace quest::cuda {

constexpr std::uint16_t kNanScale = 0x7E00;

/// Least f16 scale with steps · scale ≥ greatest; NaN if there is none that is finite, and where
/// `greatest` is infinite. The product must be exact.
__device__ inline std::uint16_t scale_reaching(float greatest, float steps) {
  constexpr std::uint16_t kInfinity = 0x7C00;
  if (!(greatest < __uint_as_float(0x7F800000U))) return kNanScale;
  std::uint16_t bits = __half_as_ushort(__float2half_ru(greatest / steps));
  // The division may have rounded down to a scale that does not reach.
  if (bits < kInfinity && __half2float(__ushort_as_half(bits)) * steps < greatest) ++bits;
  return bits < kInfinity ? bits : kNanScale;
}

/// The greatest of this number in the channels of one scale, +inf if a bound of any is NaN.
__device__ inline float greatest_of_block(float low, float high, float x) {
  // fmaxf drops a NaN: it is carried apart.
  const bool nan = low != low || high != high;
  return warp_max(nan ? __uint_as_float(0x7F800000U) : x);
}

/// Rounds the bounds of one channel outward (SPEC S7.6). A warp holds the 32 channels of one scale.
///
/// A key has at most 11 significant bits, and so has a scale; 127 has 7. So a quotient of two of
/// them that is no integer is further from one than 2^-19 of itself: the divisions, rounded to 24
/// bits, never reach one from the wrong side. Nor do they reach zero.
__device__ inline void store_q8_bounds(const LayerPool& pool, const PoolShape& shape,
                                       std::int64_t summary, std::int32_t channel, float low,
                                       float high) {
  const std::uint16_t bits =
      scale_reaching(greatest_of_block(low, high, fmaxf(fabsf(low), fabsf(high))), 127.0F);
  const float scale = __half2float(__ushort_as_half(bits));
  const float down = scale > 0 ? floorf(low / scale) : 0.0F;
  const float up = scale > 0 ? ceilf(high / scale) : 0.0F;
  std::int8_t* const out = pool.rounded_summaries + summary * 2 * shape.head_dim;
  out[channel] = static_cast<std::int8_t>(down);
  out[shape.head_dim + channel] = static_cast<std::int8_t>(up);
  if (channel % kWarp == 0) {
    pool.summary_scales[summary * (shape.head_dim / kWarp) + channel / kWarp] = bits;
  }
}

/// Stores the box of one channel's bounds, centre and half-width, as quantise_summary_q4 does on
/// the host (src/cache/quantise.h), bit for bit. A warp holds the 32 channels of one pair of
/// scales.
__device__ inline void store_q4_box(const LayerPool& pool, const PoolShape& shape,
                                    std::int64_t summary, std::int32_t channel, float low,
                                    float high) {
  const float middle = 0.5F * (low + high);
  // An infinite bound makes one of the two scales NaN.
  std::uint16_t centre_bits = scale_reaching(greatest_of_block(low, middle, fabsf(middle)), 15.0F);
  const float centre_scale = __half2float(__ushort_as_half(centre_bits));
  const float centre = centre_scale > 0 ? floorf(middle / centre_scale + 0.5F) : 0.0F;
  const float c = centre_scale > 0 ? centre * centre_scale : 0.0F;
  const float reach = fmaxf(__fsub_ru(high, c), __fsub_ru(c, low));
  std::uint16_t half_bits = scale_reaching(greatest_of_block(low, high, reach), 7.0F);
  if (centre_bits == kNanScale || half_bits == kNanScale) centre_bits = half_bits = kNanScale;
  const float half_scale = __half2float(__ushort_as_half(half_bits));
  float half = half_scale > 0 ? ceilf(reach / half_scale) : 0.0F;
  if (half * half_scale < reach) half += 1;  // the quotient was rounded to an integer
  const int byte =
      half_bits == kNanScale ? 0 : static_cast<int>(centre) * 8 + static_cast<int>(half);
  pool.rounded_summaries[summary * shape.head_dim + channel] = static_cast<std::int8_t>(byte);
  if (channel % kWarp == 0) {
    const std::int32_t blocks = shape.head_dim / kWarp;
    std::uint16_t* const scales = pool.summary_scales + summary * 2 * blocks + channel / kWarp;
    scales[0] = centre_bits;
    scales[blocks] = half_bits;
  }
}

/// Least and greatest key of one channel of a page, as `order` has them.
template <class Element>
struct ChannelBounds {
  std::int32_t least = 0x7FFF;
  std::int32_t most = -0x8000;

  __device__ void add(std::uint16_t bits) {
    const std::int32_t key = order(bits);
    least = key < least ? key : least;
    most = key > most ? key : most;
  }
  /// Both bounds are NaN if a key is.
  __device__ bool nan() const { return most > Element::kInf || least < ~Element::kInf; }
  __device__ std::uint16_t low() const { return nan() ? Element::kNaN : from_order(least); }
  __device__ std::uint16_t high() const { return nan() ? Element::kNaN : from_order(most); }
};

/// Stores the keys and values that the step adds to the touched pages, and makes the summaries of
/// those anew from their keys, at most a page of them: no rounding adds up, and a page that was cut
/// or recycled needs no other treatment (SPEC S2.2, S2.4). Blocks take (page, KV head) in turn,
/// threads one channel each.
template <class Element>
__global__ void append_summarise(LayerArgs args) {
  const PoolShape& shape = args.shape;
  const std::int64_t work = static_cast<std::int64_t>(args.counts->touched) * shape.num_kv_heads;
  const std::int32_t channel = thread_of_block();
  for (std::int64_t i = block_of_grid(); i < work; i += blocks_of_grid()) {
    const TouchedPage& page = args.touched[i / shape.num_kv_heads];
    const auto head = static_cast<std::int32_t>(i % shape.num_kv_heads);
    const std::int64_t offset = page_offset(shape, page.page, head) + channel;
    std::uint16_t* const keys = args.pool.k + offset;
    std::uint16_t* const values = args.pool.v + offset;
    ChannelBounds<Element> bounds;
    const std::int32_t kept = page.tokens - page.added;
    for (std::int32_t t = 0; t < kept; ++t) bounds.add(keys[t * shape.head_dim]);
    const std::int64_t from = static_cast<std::int64_t>(head) * shape.head_dim + channel;
    for (std::int32_t t = kept; t < page.tokens; ++t) {
      const std::int64_t row = page.first_row + t - kept;
      const std::uint16_t key = Element::narrow(args.k[row * args.k_stride + from]);
      keys[t * shape.head_dim] = key;
      values[t * shape.head_dim] = Element::narrow(args.v[row * args.v_stride + from]);
      bounds.add(key);
    }
    const std::int64_t summary = summary_index(shape, page.page, head);
    if (shape.summary_type == SummaryType::kQ8) {
      store_q8_bounds(args.pool, shape, summary, channel, Element::widen(bounds.low()),
                      Element::widen(bounds.high()));
    } else if (shape.summary_type == SummaryType::kQ4) {
      store_q4_box(args.pool, shape, summary, channel, Element::widen(bounds.low()),
                   Element::widen(bounds.high()));
    } else {
      std::uint16_t* const out = args.pool.summaries + summary * 2 * shape.head_dim;
      out[channel] = bounds.low();
      out[shape.head_dim + channel] = bounds.high();
    }
  }
}

}  // namespace quest::cuda
