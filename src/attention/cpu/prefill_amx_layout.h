// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace quest::cpu {

/// Virtual rows whose logits are computed together: two tiles.
inline constexpr std::int32_t kAmxBlockRows = 32;
/// Tokens or channels that one tile product sums over.
inline constexpr std::int32_t kAmxStep = 32;
/// Tokens whose logits are computed together: the logits of all stages stay in the first-level
/// cache.
inline constexpr std::int32_t kAmxUnit = 64;
/// Units under way at a time: logits of one, softmax of the next, values of the third.
inline constexpr std::int32_t kAmxStages = 3;
/// 32-bit words of a tile, and of a row of it.
inline constexpr std::int64_t kTileWords = 256;
inline constexpr std::int64_t kRowWords = 16;

constexpr std::int32_t round_up(std::int32_t n, std::int32_t unit) {
  return (n + unit - 1) / unit * unit;
}

/// The arrays of one prefill tile, cut out of one allocation. Numbers are stored as two bf16 parts
/// in two arrays of the same shape, one after the other; a word holds a pair of bf16. `depth` is
/// head_dim rounded up to whole steps; the channels in between are 0.
struct AmxScratch {
  std::int32_t depth;
  std::int32_t run;          ///< tokens whose keys and values are split at a time
  std::int64_t query_words;  ///< of one part
  std::int64_t run_words;    ///< of one part of keys or values

  std::uint32_t* keys;     ///< [run / 16][depth / 2 pairs of channels][16 tokens]
  std::uint32_t* values;   ///< [depth / 16][run / 2 pairs of tokens][16 channels]
  std::uint32_t* queries;  ///< [rows / 16][depth / 32][16 rows][16 pairs of channels]
  /// [stage][2][2][16 rows][32 tokens] of a unit. The softmax puts the weights' two parts, 64 bytes
  /// each, where the 32 logits were.
  float* logits;
  float* o;        ///< [rows / 16][depth / 16][16 rows][16 channels]
  float* sums;     ///< [rows][16]: the sum of weights is that of 16 numbers
  float* shifts;   ///< [rows]: weights are 2^(logit · scale · log2 e - shift)
  float* rescale;  ///< [stage][32]: factors on `o` before the values of the unit are added

  AmxScratch(float* base, std::int32_t virtual_rows, std::int32_t head_dim)
      : depth(round_up(head_dim, kAmxStep)), run(head_dim <= 128 ? 256 : 128) {
    const std::int64_t rows = round_up(virtual_rows, kAmxBlockRows);
    query_words = rows * depth / 2;
    run_words = std::int64_t{run} * depth / 2;
    float* next = base;
    const auto take = [&next](std::int64_t words) {
      float* array = next;
      next += words;
      return array;
    };
    keys = reinterpret_cast<std::uint32_t*>(take(2 * run_words));
    values = reinterpret_cast<std::uint32_t*>(take(2 * run_words));
    queries = reinterpret_cast<std::uint32_t*>(take(2 * query_words));
    logits = take(std::int64_t{kAmxStages} * kAmxBlockRows * kAmxUnit);
    o = take(rows * depth);
    sums = take(rows * kRowWords);
    shifts = take(rows);
    rescale = take(std::int64_t{kAmxStages} * kAmxBlockRows);
  }

  static std::int64_t floats(std::int32_t virtual_rows, std::int32_t head_dim) {
    const std::int64_t rows = round_up(virtual_rows, kAmxBlockRows);
    const std::int64_t depth = round_up(head_dim, kAmxStep);
    const std::int64_t run = head_dim <= 128 ? 256 : 128;
    return 2 * run * depth + rows * depth +
           std::int64_t{kAmxStages} * kAmxBlockRows * (kAmxUnit + 1) +
           rows * (depth + kRowWords + 1);
  }
};

}  // namespace quest::cpu
