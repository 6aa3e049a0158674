// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace quest {

/// Top-K in three steps over order keys: make keys, find the K-th key, list what passes. Every step
/// is linear in the number of pages whatever the scores; nothing is sorted (SPEC S4.8).

/// Key that no score has; ranks below every score. Marks a page as out of the choice.
inline constexpr std::uint32_t kExcludedKey = 0;

/// Maps scores to unsigned keys of the same order; equal scores (+0 and -0 too) get equal keys,
/// infinities are ordinary values. Returns false, keys unspecified, if any score is NaN.
/// keys: at least scores.size().
bool make_order_keys(std::span<const float> scores, std::uint32_t* keys);

/// What a key needs to be among the K best: be above `key`, or be one of the first `ties` (by
/// index) that equal it.
struct KeyThreshold {
  std::uint32_t key = 0;
  std::int32_t ties = 0;
};

/// Threshold of the `k` greatest keys, 1 ≤ k ≤ keys.size(). `refine` is scratch; it grows to
/// keys.size() at most and never shrinks.
KeyThreshold find_threshold(std::span<const std::uint32_t> keys, std::int32_t k,
                            std::vector<std::uint32_t>& refine);

/// Writes first_page + i of every key that passes, ascending, and returns how many: exactly the k
/// of find_threshold. pages: room for k + 1 entries; the slot after the last is scribbled on, which
/// keeps the loop free of branches.
std::int32_t list_passing(std::span<const std::uint32_t> keys, KeyThreshold threshold,
                          std::int32_t first_page, std::int32_t* pages);

}  // namespace quest
