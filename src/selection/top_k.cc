// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "selection/top_k.h"

#include <algorithm>
#include <array>
#include <bit>
#include <functional>

namespace quest {

namespace {

constexpr int kHistogramBits = 9;
constexpr std::size_t kHistogramBins = std::size_t{1} << kHistogramBits;
/// Below this size partitioning is cheaper than clearing and scanning a histogram.
constexpr std::size_t kSmallPool = 64;

KeyThreshold partition_threshold(std::span<std::uint32_t> pool, std::int32_t k) {
  const auto nth = pool.begin() + (k - 1);
  std::nth_element(pool.begin(), nth, pool.end(), std::greater<>());
  const std::uint32_t key = *nth;
  const auto above = std::count_if(pool.begin(), nth, [key](std::uint32_t x) { return x > key; });
  return {key, k - static_cast<std::int32_t>(above)};
}

}  // namespace

bool make_order_keys(std::span<const float> scores, std::uint32_t* keys) {
  std::uint32_t nan = 0;
  for (std::size_t i = 0; i < scores.size(); ++i) {
    const float score = scores[i] + 0.0F;  // -0 becomes +0: equal scores need equal keys
    const auto bits = std::bit_cast<std::uint32_t>(score);
    nan |= static_cast<std::uint32_t>(score != score);
    // Negative floats order backwards as integers: flip them whole, and lift the others above.
    const std::uint32_t negative = 0U - (bits >> 31);
    keys[i] = bits ^ (negative | 0x80000000U);
  }
  return nan == 0;
}

KeyThreshold find_threshold(std::span<const std::uint32_t> keys, std::int32_t k,
                            std::vector<std::uint32_t>& refine) {
  if (refine.size() < keys.size()) refine.resize(keys.size());
  // Each round keeps the keys of the one histogram bin that holds the k-th, and spreads the bins
  // over the range that is left: four rounds at most for 32-bit keys, usually two.
  std::span<const std::uint32_t> pool = keys;
  while (pool.size() > kSmallPool) {
    const auto [low, high] = std::minmax_element(pool.begin(), pool.end());
    const std::uint32_t base = *low;
    const std::uint32_t range = *high - base;
    if (range == 0) return {base, k};
    const int shift = std::max(0, static_cast<int>(std::bit_width(range)) - kHistogramBits);

    std::array<std::int32_t, kHistogramBins> histogram{};
    for (std::uint32_t key : pool) ++histogram[(key - base) >> shift];
    std::uint32_t bin = range >> shift;
    while (histogram[bin] < k) k -= histogram[bin--];
    if (shift == 0) return {base + bin, k};

    std::size_t kept = 0;  // never ahead of the reading position: refining in place is safe
    for (std::uint32_t key : pool) {
      refine[kept] = key;
      kept += static_cast<std::size_t>((key - base) >> shift == bin);
    }
    pool = {refine.data(), kept};
  }
  if (pool.data() != refine.data()) std::copy(pool.begin(), pool.end(), refine.begin());
  return partition_threshold({refine.data(), pool.size()}, k);
}

std::int32_t list_passing(std::span<const std::uint32_t> keys, KeyThreshold threshold,
                          std::int32_t first_page, std::int32_t* pages) {
  std::int32_t count = 0;
  std::int32_t ties = threshold.ties;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const auto tie = static_cast<std::int32_t>(keys[i] == threshold.key);
    const auto pass = static_cast<std::int32_t>(keys[i] > threshold.key) |
                      (tie & static_cast<std::int32_t>(ties > 0));
    pages[count] = first_page + static_cast<std::int32_t>(i);
    count += pass;
    ties -= tie;
  }
  return count;
}

}  // namespace quest
