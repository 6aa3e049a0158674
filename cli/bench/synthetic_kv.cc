// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "bench/synthetic_kv.h"

#include <algorithm>
#include <cmath>

namespace quest::cli {
namespace {

// splitmix64: each state is mixed on its own, so a stream costs nothing to start.
std::uint64_t mixed(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

void fill_uniform(std::span<float> values, float deviation, std::uint64_t seed) {
  constexpr float kUnit = 1.0F / 8388608.0F;  // 24 random bits cover [-1, 1)
  const float factor = deviation * std::sqrt(3.0F);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto bits = static_cast<std::int32_t>(mixed(seed + i) >> 40);
    values[i] = factor * (static_cast<float>(bits) * kUnit - 1.0F);
  }
}

}  // namespace

CacheShape AttentionShape::cache() const {
  return {layers, kv_heads, head_dim, page_size, kv, batch * ((context - 1) / page_size + 1)};
}

std::int64_t AttentionShape::layer_bytes() const {
  const CacheShape shape = cache();
  return 2 * shape.num_pages * shape.num_kv_heads * shape.page_bytes();
}

std::int32_t measured_layers(const AttentionShape& shape) {
  constexpr std::int64_t kPassBytes = std::int64_t{256} << 20;
  return static_cast<std::int32_t>(
      std::clamp<std::int64_t>(kPassBytes / shape.layer_bytes(), 1, 32));
}

std::vector<float> synthetic_rows(const AttentionShape& shape, Part part, std::int32_t layer,
                                  std::int32_t sequence, std::int32_t head, std::int64_t count) {
  std::vector<float> rows(static_cast<std::size_t>(count * shape.head_dim));
  std::uint64_t seed = 1 + static_cast<std::uint64_t>(part);
  for (const std::int32_t index : {layer, sequence, head}) {
    seed = mixed(seed + static_cast<std::uint64_t>(index));
  }
  fill_uniform(rows, part == Part::kQuery ? 2.0F : 1.0F, seed);
  return rows;
}

}  // namespace quest::cli
