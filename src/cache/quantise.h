// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace quest {

/// Quantises one token's row of one head: 8-bit integers and one f16 scale for every 32 channels,
/// the values of ggml's q8_0. A block that holds a NaN, an infinity or a number beyond an f16
/// scale gets a NaN scale, so that whoever reads it meets the NaN.
/// x: [head_dim]; q: [head_dim]; scales: [ceil(head_dim / 32)], f16 bits.
void quantise_row(const float* x, std::int32_t head_dim, std::int8_t* q, std::uint16_t* scales);

/// Quantises a page summary outward (SPEC S7.6): scale · q[0][j] ≤ low[j] and
/// scale · q[1][j] ≥ high[j] exactly. Blocks that are not finite get a NaN scale.
/// low, high: [head_dim]; q: [2, head_dim]; scales: [ceil(head_dim / 32)], f16 bits.
void quantise_summary(const float* low, const float* high, std::int32_t head_dim, std::int8_t* q,
                      std::uint16_t* scales);

/// The same in 4 bits a bound: byte j = centre << 3 | half-width, see PagedKv. Exactly, not only as
/// rounded, centre · scale - half-width · scale' ≤ low[j] and centre · scale + half-width · scale'
/// ≥ high[j]. Blocks that are not finite get two NaN scales. low, high: [head_dim]; q: [head_dim];
/// scales: [2, ceil(head_dim / 32)], f16 bits.
void quantise_summary_q4(const float* low, const float* high, std::int32_t head_dim,
                         std::uint8_t* q, std::uint16_t* scales);

/// The nearest f16 that is not above, not below x; f16 bits. NaN stays NaN.
std::uint16_t f16_at_most(float x);
std::uint16_t f16_at_least(float x);

}  // namespace quest
