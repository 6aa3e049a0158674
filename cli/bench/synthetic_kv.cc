// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "bench/synthetic_kv.h"

#include <algorithm>

#include "bench/random_values.h"

namespace quest::cli {
CacheShape AttentionShape::cache() const {
  return {layers, kv_heads, head_dim, page_size, kv, batch * ((context - 1) / page_size + 1),
          summary};
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
