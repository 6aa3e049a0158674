// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "attention/cuda/device_step.h"
#include "gpu_check/rows.h"

namespace quest::gpu_check {

/// Rows of one layer in device memory.
class DeviceInput {
 public:
  DeviceInput(cuda::Device& device, const CacheShape& shape, std::int32_t group, std::int64_t count)
      : device_(device), values_(device) {
    const std::int64_t kv = std::int64_t{shape.num_kv_heads} * shape.head_dim;
    values_.grow(count * (2 * kv * group + 2 * kv));
    rows.q = values_.data();
    rows.k = rows.q + count * kv * group;
    rows.v = rows.k + count * kv;
    rows.out = values_.data() + count * kv * (group + 2);
    rows.q_stride = rows.out_stride = kv * group;
    rows.k_stride = rows.v_stride = kv;
  }

  void set(const Rows& from) {
    send(rows.q, from.q);
    send(rows.k, from.k);
    send(rows.v, from.v);
  }

  cuda::DeviceRows rows;

 private:
  void send(const float* to, const std::vector<float>& from) {
    device_.upload(values_.data() + (to - values_.data()), from.data(),
                   static_cast<std::int64_t>(from.size() * sizeof(float)));
  }

  cuda::Device& device_;
  cuda::DeviceArray<float> values_;
};

}  // namespace quest::gpu_check
