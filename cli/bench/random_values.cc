// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "bench/random_values.h"

#include <cmath>

namespace quest::cli {

// The finaliser of splitmix64: each place is mixed on its own, so a stream can start anywhere.
std::uint64_t mixed(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

void fill_uniform(std::span<float> values, float deviation, std::uint64_t seed,
                  std::uint64_t first) {
  constexpr float kUnit = 1.0F / 8388608.0F;  // 24 random bits cover [-1, 1)
  const float factor = deviation * std::sqrt(3.0F);
  const std::uint64_t start = mixed(seed) + first;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto bits = static_cast<std::int32_t>(mixed(start + i) >> 40);
    values[i] = factor * (static_cast<float>(bits) * kUnit - 1.0F);
  }
}

}  // namespace quest::cli
