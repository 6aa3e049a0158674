// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace quest::cpu {

/// Tokens of keys and values that are widened at once and then serve every row of a tile: as many
/// as keep both in a second-level cache.
constexpr std::int32_t prefill_run(std::int32_t head_dim) { return head_dim <= 128 ? 256 : 128; }
inline constexpr std::int32_t kPrefillMaxRun = 256;
/// Rows of a register block on any target.
inline constexpr std::int32_t kPrefillMaxBlockRows = 8;
/// Floats between the logits of two rows; not a power of two, to spread over the cache sets.
inline constexpr std::int32_t kPrefillLogitStride = kPrefillMaxRun + 16;

/// Floats of one running softmax.
inline constexpr std::int32_t kPrefillStateFloats = 3;

/// The arrays of one tile, cut out of one allocation.
struct PrefillScratch {
  float* keys;    ///< panels of [head_dim][panel tokens]; run tokens, rounded up to a page of 64
  float* values;  ///< [run, head_dim]
  float* logits;  ///< [kPrefillMaxBlockRows, kPrefillLogitStride]
  float* q;       ///< [virtual_rows, head_dim]
  float* o;       ///< [virtual_rows, head_dim]
  float* states;  ///< [virtual_rows, kPrefillStateFloats]

  PrefillScratch(float* base, std::int32_t virtual_rows, std::int32_t head_dim)
      : keys(base),
        values(keys + std::int64_t{prefill_run(head_dim)} * head_dim),
        logits(values + std::int64_t{prefill_run(head_dim)} * head_dim),
        q(logits + std::int64_t{kPrefillMaxBlockRows} * kPrefillLogitStride),
        o(q + std::int64_t{virtual_rows} * head_dim),
        states(o + std::int64_t{virtual_rows} * head_dim) {}

  static std::int64_t floats(std::int32_t virtual_rows, std::int32_t head_dim) {
    return std::int64_t{2} * prefill_run(head_dim) * head_dim +
           std::int64_t{kPrefillMaxBlockRows} * kPrefillLogitStride +
           std::int64_t{virtual_rows} * (2 * head_dim + kPrefillStateFloats);
  }
};

}  // namespace quest::cpu
