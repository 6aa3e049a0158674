// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "quest/attention.h"
#include "quest/team.h"

namespace quest::test {

/// Queries, keys and values of `rows` consecutive tokens of one layer: [rows, heads, head_dim].
struct Tokens {
  Tokens(const CacheShape& shape, std::int32_t group, std::int64_t count)
      : rows(count),
        q_stride(std::int64_t{shape.num_kv_heads} * group * shape.head_dim),
        kv_stride(std::int64_t{shape.num_kv_heads} * shape.head_dim),
        q(static_cast<std::size_t>(count * q_stride), 0.0F),
        k(static_cast<std::size_t>(count * kv_stride), 0.0F),
        v(static_cast<std::size_t>(count * kv_stride), 0.0F) {}

  /// Uniform in [-1, 1).
  void fill(std::uint32_t seed) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<float> uniform(-1.0F, 1.0F);
    for (auto* values : {&q, &k, &v}) {
      for (float& x : *values) x = uniform(random);
    }
  }
  /// Rows [first, first + count) alone.
  Tokens slice(std::int64_t first, std::int64_t count) const {
    Tokens part = *this;
    part.rows = count;
    const auto cut = [&](const std::vector<float>& all, std::int64_t stride) {
      return std::vector<float>(all.begin() + first * stride,
                                all.begin() + (first + count) * stride);
    };
    part.q = cut(q, q_stride);
    part.k = cut(k, kv_stride);
    part.v = cut(v, kv_stride);
    return part;
  }

  std::int64_t rows;
  std::int64_t q_stride;
  std::int64_t kv_stride;
  std::vector<float> q;
  std::vector<float> k;
  std::vector<float> v;
};

/// What one layer call left behind.
struct StepResult {
  std::vector<float> out;  ///< [rows, num_q_heads, head_dim]
  SelectedPages selection;
  std::vector<std::int32_t> list(std::int64_t row_head) const {
    const auto i = static_cast<std::size_t>(row_head);
    return {selection.pages.begin() + selection.indptr[i],
            selection.pages.begin() + selection.indptr[i + 1]};
  }
};

/// Runs one layer of a prepared batch whose tokens are reserved.
inline StepResult run_layer(AttentionBackend& backend, const CacheShape& shape, const Batch& batch,
                            const Tokens& tokens, std::int32_t layer = 0, float scale = 1) {
  StepResult result;
  result.out.assign(tokens.q.size(), -99.0F);
  LayerInput input;
  input.layer = layer;
  input.num_q_heads = static_cast<std::int32_t>(tokens.q_stride / shape.head_dim);
  input.scale = scale;
  input.q = tokens.q.data();
  input.k = tokens.k.data();
  input.v = tokens.v.data();
  input.q_stride = input.out_stride = tokens.q_stride;
  input.k_stride = input.v_stride = tokens.kv_stride;
  input.out = result.out.data();
  Team team(1);
  backend.begin_step(batch, input.num_q_heads, 1);
  backend.forward(input, team, 0);
  result.selection = backend.last_selection();
  backend.end_step();
  return result;
}

/// Appends the tokens to one sequence and attends: one request, one layer.
inline StepResult feed(AttentionBackend& backend, KvCache& cache, SequenceId sequence,
                       const Tokens& tokens, bool sparse, float scale = 1) {
  cache.reserve(sequence, tokens.rows);
  Batch batch;
  add_request(batch, cache, sequence, static_cast<std::int32_t>(tokens.rows), sparse);
  return run_layer(backend, cache.shape(), batch, tokens, 0, scale);
}

/// One layer, one KV head unless told otherwise; room for `num_pages` pages.
inline CacheShape small_shape(std::int64_t num_pages, std::int32_t page_size = 8,
                              std::int32_t num_kv_heads = 1, KvType type = KvType::kF32) {
  return {1, num_kv_heads, 64, page_size, type, num_pages};
}

/// Policy without dense layers, sinks or window: the scores alone decide.
inline SelectionPolicy bare_policy(std::int64_t budget, GroupMode mode = GroupMode::kGroupMean) {
  SelectionPolicy policy = SelectionPolicy::paper(budget);
  policy.dense_layers = 0;
  policy.group_mode = mode;
  return policy;
}

}  // namespace quest::test
