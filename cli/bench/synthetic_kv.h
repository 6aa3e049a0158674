// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "quest/kv_type.h"
#include "quest/paged_kv.h"

namespace quest::cli {

/// The attention of some equal layers at decode: what `quest bench attention` runs.
struct AttentionShape {
  std::int32_t q_heads = 0;
  std::int32_t kv_heads = 0;
  std::int32_t head_dim = 0;
  std::int32_t page_size = 16;
  KvType kv = KvType::kF16;
  SummaryType summary = SummaryType::kPlain;
  std::int64_t context = 0;  ///< tokens of each sequence, the new one included
  std::int32_t batch = 1;    ///< sequences, one new token each
  std::int32_t layers = 1;

  /// Shape of the paged cache that holds all of it.
  CacheShape cache() const;
  /// K and V bytes of one layer, whole pages.
  std::int64_t layer_bytes() const;
};

/// Layers such that one dense pass takes long enough for the clock: about 256 MiB of K and V, at
/// most 32 layers.
std::int32_t measured_layers(const AttentionShape& shape);

enum class Part { kKey, kValue, kQuery };

/// Random numbers of unit variance, the same for the same arguments on every machine: keys or
/// values [count, head_dim] of tokens 0 … count - 1 of one KV head, or queries [heads, head_dim]
/// (`head` 0, `count` heads) that make the logits' spread about 2, so that attention is neither
/// flat nor on one token.
std::vector<float> synthetic_rows(const AttentionShape& shape, Part part, std::int32_t layer,
                                  std::int32_t sequence, std::int32_t head, std::int64_t count);

}  // namespace quest::cli
