// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "bench/synthetic_kv.h"

namespace quest::cli {

/// Attention as llama.cpp builds it, on ggml's CPU backend, over the same random keys, values and
/// queries as our own side: the whole context is in the cache, storing the new token is not timed.
/// Every sequence is a stream of its own; the cache is padded to a multiple of 256 tokens, masked.
class GgmlAttention {
 public:
  /// flash: one fused operator over K and V by token; else mul_mat, soft_max_ext, mul_mat over K by
  /// token and V by channel, which quantised V does not allow.
  static bool available(KvType type, bool flash);

  /// Throws Error if ggml cannot start or allocate.
  GgmlAttention(const AttentionShape& shape, bool flash, int threads);
  ~GgmlAttention();
  GgmlAttention(const GgmlAttention&) = delete;
  GgmlAttention& operator=(const GgmlAttention&) = delete;

  /// Greatest difference from exact attention, relative to the largest element of a head's output,
  /// that rounding explains: ggml's flash attention adds up half-precision values in half
  /// precision, quantised caches round in ways of their own.
  double tolerance() const;
  /// Runs all layers once; returns the seconds.
  double pass();
  /// The layer's output of the last pass: [batch, q_heads, head_dim].
  std::vector<float> output(std::int32_t layer) const;

 private:
  struct State;
  const bool flash_;
  std::unique_ptr<State> state_;
};

}  // namespace quest::cli
