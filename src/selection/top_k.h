// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace quest {

/// Top-K in three steps over order keys: make keys, find the K-th key, mark what passes. Nothing is
/// sorted; the work is a few passes of vector instructions whatever the scores (SPEC S4.8).

/// Key that no score has; ranks below every score. Marks a page as out of the choice.
inline constexpr std::uint32_t kExcludedKey = 0;
/// Entries that a key buffer must have beyond its keys: passes read and write whole vectors.
inline constexpr std::size_t kKeyPadding = 128;

/// What the keys of some scores lie between, and whether a score was NaN.
struct KeyRange {
  std::uint32_t low = 0;
  std::uint32_t high = 0;
  bool nan = false;
};

/// Whether any value is NaN.
bool has_nan(std::span<const float> values);

/// Maps scores to unsigned keys of the same order; equal scores (+0 and -0 too) get equal keys,
/// infinities are ordinary values. With a NaN among the scores only `nan` of the result counts.
/// keys: scores.size() + kKeyPadding entries, all written; scores.size() ≥ 1.
KeyRange make_order_keys(std::span<const float> scores, std::uint32_t* keys);

/// What a key needs to be among the K best: be above `key`, or be one of the first `ties` (by
/// index) that equal it.
struct KeyThreshold {
  std::uint32_t key = 0;
  std::int32_t ties = 0;
};

/// Threshold of the `k` greatest of `count` keys; at least k of them, k ≥ 1, are not excluded.
/// `range` bounds the keys that are not excluded; it need not be tight.
/// keys, refine (scratch): count + kKeyPadding entries, the padding of `keys` excluded.
KeyThreshold find_threshold(const std::uint32_t* keys, std::size_t count, std::int32_t k,
                            KeyRange range, std::uint32_t* refine);

/// Sets bit i of `marks` for every key i that passes: exactly the k of find_threshold. Bits already
/// set stay. marks: ceil(count / 64) words.
void mark_passing(const std::uint32_t* keys, std::size_t count, KeyThreshold threshold,
                  std::uint64_t* marks);

}  // namespace quest
