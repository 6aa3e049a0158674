// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <span>

namespace quest {

/// Attention of one query row over some of its tokens, unfinished, so that splits over pages,
/// threads and ranks merge exactly (SPEC S5.4). The default state has seen no token.
/// With logits x_t over the tokens seen: max = max x_t, sum = Σ exp(x_t - max),
/// o = Σ exp(x_t - max)·v_t. The view does not own `o`.
struct PartialAttention {
  std::span<float> o;  ///< [head_dim], not divided by sum; arbitrary while empty
  float max = -std::numeric_limits<float>::infinity();
  float sum = 0;

  /// No token seen, or none with weight. True -inf marks it: no finite logit can be mistaken for
  /// it.
  bool empty() const { return max == -std::numeric_limits<float>::infinity(); }
  /// log Σ exp(x_t); -inf when empty.
  float log_sum_exp() const { return empty() ? max : max + std::log(sum); }
};

/// Folds `from` into `into`; both of one head_dim, over disjoint tokens. The order of merges
/// changes the result by rounding only.
inline void merge(PartialAttention& into, const PartialAttention& from) {
  // Two empty states would merge into exp(-inf - -inf) = NaN; an empty side changes nothing.
  if (from.empty()) return;
  if (into.empty()) {
    for (std::size_t j = 0; j < into.o.size(); ++j) into.o[j] = from.o[j];
    into.max = from.max;
    into.sum = from.sum;
    return;
  }
  const float max = into.max > from.max ? into.max : from.max;
  const float keep = std::exp(into.max - max);
  const float add = std::exp(from.max - max);
  for (std::size_t j = 0; j < into.o.size(); ++j) into.o[j] = keep * into.o[j] + add * from.o[j];
  into.max = max;
  into.sum = keep * into.sum + add * from.sum;
}

/// Writes the attention output, o / sum, or zeros when empty. out: [head_dim], may be partial.o.
inline void finish(const PartialAttention& partial, float* out) {
  const float scale = partial.empty() ? 0.0F : 1.0F / partial.sum;
  for (std::size_t j = 0; j < partial.o.size(); ++j) {
    // Not o · 0 when empty: o is arbitrary then, NaN included.
    out[j] = partial.empty() ? 0.0F : partial.o[j] * scale;
  }
}

}  // namespace quest
