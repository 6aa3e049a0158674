// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "quest/attention.h"

namespace quest::gpu_check {

/// Random queries, keys and values of one layer, and room for the output: [rows, heads, head_dim].
struct Rows {
  Rows(const CacheShape& shape, std::int32_t group, std::int64_t count, std::uint32_t seed) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<float> uniform(-1.0F, 1.0F);
    const std::int64_t kv = std::int64_t{shape.num_kv_heads} * shape.head_dim;
    for (auto [values, width] : {std::pair{&q, kv * group}, {&k, kv}, {&v, kv}}) {
      values->resize(static_cast<std::size_t>(count * width));
      for (float& x : *values) x = uniform(random);
    }
    out.resize(q.size());
    input.num_q_heads = shape.num_kv_heads * group;
    input.scale = 1.0F / std::sqrt(static_cast<float>(shape.head_dim));
    input.q_stride = input.out_stride = kv * group;
    input.k_stride = input.v_stride = kv;
    input.q = q.data();
    input.k = k.data();
    input.v = v.data();
    input.out = out.data();
  }
  Rows(const Rows&) = delete;

  std::vector<float> q;
  std::vector<float> k;
  std::vector<float> v;
  std::vector<float> out;
  LayerInput input;
};

}  // namespace quest::gpu_check
