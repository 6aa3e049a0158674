// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

// Stored elements as numbers. After a platform header.

namespace quest::cuda {

/// 16-bit patterns of one element type. `order` maps them to integers that compare like the numbers
/// do: minus zero below plus zero, NaN of either sign beyond the infinities; its own inverse.
struct F16 {
  static constexpr bool kBf16 = false;
  static constexpr std::int32_t kInf = 0x7C00;
  static constexpr std::uint16_t kNaN = 0x7E00;
  __device__ static float widen(std::uint16_t bits) { return __half2float(__ushort_as_half(bits)); }
  __device__ static std::uint16_t narrow(float x) { return __half_as_ushort(__float2half_rn(x)); }
  __device__ static std::uint32_t pack(float low, float high) { return pack_f16(low, high); }
};

struct BF16 {
  static constexpr bool kBf16 = true;
  static constexpr std::int32_t kInf = 0x7F80;
  static constexpr std::uint16_t kNaN = 0x7FC0;
  __device__ static float widen(std::uint16_t bits) {
    return __uint_as_float(static_cast<std::uint32_t>(bits) << 16);
  }
  __device__ static std::uint16_t narrow(float x) {
    const std::uint32_t bits = __float_as_uint(x);
    if ((bits & 0x7FFFFFFFU) > 0x7F800000U) return static_cast<std::uint16_t>(bits >> 16 | 64U);
    return static_cast<std::uint16_t>((bits + 0x7FFFU + (bits >> 16 & 1U)) >> 16);
  }
  __device__ static std::uint32_t pack(float low, float high) { return pack_bf16(low, high); }
};

__device__ inline std::int32_t order(std::uint16_t bits) {
  const auto value = static_cast<std::int16_t>(bits);
  return value < 0 ? value ^ 0x7FFF : value;
}

__device__ inline std::uint16_t from_order(std::int32_t value) {
  return static_cast<std::uint16_t>(value < 0 ? value ^ 0x7FFF : value);
}

/// The eight 16-bit elements of 16 bytes.
template <class Element>
__device__ inline void widen(const uint4& bits, float (&values)[8]) {
  const unsigned words[4] = {bits.x, bits.y, bits.z, bits.w};
  QUEST_UNROLL
  for (int i = 0; i < 4; ++i) {
    values[2 * i] = Element::widen(static_cast<std::uint16_t>(words[i] & 0xFFFFU));
    values[2 * i + 1] = Element::widen(static_cast<std::uint16_t>(words[i] >> 16));
  }
}

/// The sixteen 8-bit integers of 16 bytes.
__device__ inline void widen_q8(const uint4& bits, float (&values)[16]) {
  const unsigned words[4] = {bits.x, bits.y, bits.z, bits.w};
  QUEST_UNROLL
  for (int i = 0; i < 16; ++i) {
    values[i] = static_cast<float>(static_cast<std::int8_t>(words[i / 4] >> (i % 4 * 8) & 0xFFU));
  }
}

/// Two numbers as two packed parts each, the nearest element and the nearest to what is left: of
/// f16 22 bits where the number is at least 2^-3, of bf16 16 bits.
template <class Element>
__device__ inline void split(float low, float high, std::uint32_t (&parts)[2]) {
  parts[0] = Element::pack(low, high);
  const float low_left = low - Element::widen(static_cast<std::uint16_t>(parts[0] & 0xFFFFU));
  const float high_left = high - Element::widen(static_cast<std::uint16_t>(parts[0] >> 16));
  parts[1] = Element::pack(low_left, high_left);
}

}  // namespace quest::cuda
