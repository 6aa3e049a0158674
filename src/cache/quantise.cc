// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "cache/quantise.h"

#include <ggml-cpu.h>
#include <ggml.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "quest/kv_type.h"

namespace quest {

namespace {

constexpr std::uint16_t kNanBits = 0x7E00;
constexpr std::uint16_t kInfBits = 0x7C00;
constexpr float kGreatest = 127.0F;
constexpr float kGreatestCentre = 15.0F;
constexpr float kGreatestHalf = 7.0F;

/// Memory of one block of ggml's q8_0, a format that GGUF files fix.
struct GgmlBlock {
  std::uint16_t scale;
  std::int8_t q[kScaleBlock];
};
static_assert(sizeof(GgmlBlock) == 34);

/// Next f16 towards plus infinity, of a number that is neither NaN nor plus infinity.
std::uint16_t next_f16(std::uint16_t bits) {
  if (bits == 0x8000) return 0x0001;
  return static_cast<std::uint16_t>((bits & 0x8000) != 0 ? bits - 1 : bits + 1);
}

/// Greatest magnitude, NaN if any of the values is NaN.
float magnitude(const float* x, std::int32_t count) {
  float greatest = 0;
  bool nan = false;
  for (std::int32_t j = 0; j < count; ++j) {
    greatest = std::max(greatest, std::abs(x[j]));
    nan |= x[j] != x[j];
  }
  return nan ? std::numeric_limits<float>::quiet_NaN() : greatest;
}

/// Least f16 with `steps` times it not below `greatest`, as bits; NaN if there is none that is
/// finite. The product of the two must be exact.
std::uint16_t scale_reaching(float greatest, float steps) {
  std::uint16_t bits = f16_at_least(greatest / steps);
  // The division may have rounded down to a scale that does not reach.
  while (bits < kInfBits && ggml_fp16_to_fp32(bits) * steps < greatest) bits = next_f16(bits);
  return bits < kInfBits ? bits : kNanBits;
}

void quantise_bounds(const float* low, const float* high, std::int32_t count, float scale,
                     std::int8_t* q_low, std::int8_t* q_high) {
  for (std::int32_t j = 0; j < count; ++j) {
    // The products are exact (8 by 11 bits); the quotients may have been rounded over an integer.
    float down = std::floor(low[j] / scale);
    if (down * scale > low[j]) down -= 1;
    float up = std::ceil(high[j] / scale);
    if (up * scale < high[j]) up += 1;
    q_low[j] = static_cast<std::int8_t>(down);
    q_high[j] = static_cast<std::int8_t>(up);
  }
}

/// Least float that is not below a - b.
float difference_at_least(float a, float b) {
  const float difference = a - b;
  // What the subtraction rounded off, exactly.
  const float minuend = difference + b;
  const float rest = (a - minuend) - (b - (minuend - difference));
  return rest > 0 ? std::nextafter(difference, std::numeric_limits<float>::infinity()) : difference;
}

/// Bounds of up to kScaleBlock channels as centres and half-widths.
struct BoxBlock {
  std::uint8_t q[kScaleBlock] = {};
  std::uint16_t centre_scale = kNanBits;
  std::uint16_t half_scale = kNanBits;
};

/// The bounds are finite, and so is the sum of any two of them.
BoxBlock quantise_box(const float* low, const float* high, std::int32_t count) {
  float middle[kScaleBlock];
  for (std::int32_t j = 0; j < count; ++j) middle[j] = 0.5F * (low[j] + high[j]);
  const std::uint16_t centre_bits = scale_reaching(magnitude(middle, count), kGreatestCentre);
  if (centre_bits == kNanBits) return {};
  const float centre_scale = ggml_fp16_to_fp32(centre_bits);
  int centre[kScaleBlock];
  // What a half-width must reach from the centre as it is stored. The products below are exact
  // (5 by 11 bits, 3 by 11 bits).
  float reach[kScaleBlock];
  float furthest = 0;
  for (std::int32_t j = 0; j < count; ++j) {
    const float nearest = centre_scale > 0 ? std::floor(middle[j] / centre_scale + 0.5F) : 0.0F;
    const float c = nearest * centre_scale;
    centre[j] = static_cast<int>(nearest);
    reach[j] = std::max(difference_at_least(high[j], c), difference_at_least(c, low[j]));
    furthest = std::max(furthest, reach[j]);
  }
  BoxBlock block;
  block.half_scale = scale_reaching(furthest, kGreatestHalf);
  if (block.half_scale == kNanBits) return {};
  block.centre_scale = centre_bits;
  const float half_scale = ggml_fp16_to_fp32(block.half_scale);
  for (std::int32_t j = 0; j < count; ++j) {
    float half = half_scale > 0 ? std::ceil(reach[j] / half_scale) : 0.0F;
    if (half * half_scale < reach[j]) half += 1;  // the quotient was rounded to an integer
    block.q[j] = static_cast<std::uint8_t>(centre[j] * 8 + static_cast<int>(half));
  }
  return block;
}

}  // namespace

std::uint16_t f16_at_least(float x) {
  const std::uint16_t bits = ggml_fp32_to_fp16(x);
  return ggml_fp16_to_fp32(bits) < x ? next_f16(bits) : bits;
}

std::uint16_t f16_at_most(float x) { return static_cast<std::uint16_t>(f16_at_least(-x) ^ 0x8000); }

void quantise_row(const float* x, std::int32_t head_dim, std::int8_t* q, std::uint16_t* scales) {
  const auto from_float = ggml_get_type_traits_cpu(GGML_TYPE_Q8_0)->from_float;
  for (std::int32_t first = 0; first < head_dim; first += kScaleBlock) {
    const std::int32_t count = std::min(kScaleBlock, head_dim - first);
    const auto size = static_cast<std::size_t>(count);
    GgmlBlock block{};
    // Everything that is not finite, or whose scale would not be, is told apart before ggml's
    // vector code, which is written for finite rows.
    if (magnitude(x + first, count) <= kGreatest * 65504.0F) {
      float padded[kScaleBlock] = {};
      std::memcpy(padded, x + first, size * sizeof(float));
      from_float(padded, &block, kScaleBlock);
    } else {
      block.scale = kNanBits;
    }
    std::memcpy(q + first, block.q, size);
    *scales++ = block.scale;
  }
}

void quantise_summary(const float* low, const float* high, std::int32_t head_dim, std::int8_t* q,
                      std::uint16_t* scales) {
  for (std::int32_t first = 0; first < head_dim; first += kScaleBlock) {
    const std::int32_t count = std::min(kScaleBlock, head_dim - first);
    const float most_low = magnitude(low + first, count);
    const float most_high = magnitude(high + first, count);
    std::uint16_t bits = scale_reaching(std::max(most_low, most_high), kGreatest);
    if (!(most_low + most_high < std::numeric_limits<float>::infinity())) bits = kNanBits;
    *scales++ = bits;
    if (bits == kNanBits || bits == 0) {
      std::memset(q + first, 0, static_cast<std::size_t>(count));
      std::memset(q + head_dim + first, 0, static_cast<std::size_t>(count));
    } else {
      quantise_bounds(low + first, high + first, count, ggml_fp16_to_fp32(bits), q + first,
                      q + head_dim + first);
    }
  }
}

void quantise_summary_q4(const float* low, const float* high, std::int32_t head_dim,
                         std::uint8_t* q, std::uint16_t* scales) {
  const std::int32_t blocks = (head_dim + kScaleBlock - 1) / kScaleBlock;
  for (std::int32_t b = 0; b < blocks; ++b) {
    const std::int32_t first = b * kScaleBlock;
    const std::int32_t count = std::min(kScaleBlock, head_dim - first);
    BoxBlock block;
    if (magnitude(low + first, count) + magnitude(high + first, count) <
        std::numeric_limits<float>::infinity()) {
      block = quantise_box(low + first, high + first, count);
    }
    std::memcpy(q + first, block.q, static_cast<std::size_t>(count));
    scales[b] = block.centre_scale;
    scales[blocks + b] = block.half_scale;
  }
}

}  // namespace quest
