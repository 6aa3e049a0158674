// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "attention/cpu_harness.h"
#include "attention/cuda/device_step.h"
#include "cuda/emulator/emulated_device.h"
#include "cuda/recording_device.h"

namespace quest::test {

/// One step of every layer on device rows, which on the emulator are host memory.
struct Stepper {
  Stepper(const CacheShape& shape, const SelectionPolicy& policy, const cuda::Tuning& tuning = {},
          const emulator::DeviceOptions& options = {})
      : cache(shape), device(emulator::make_device(options)), step(cache, device, tuning) {
    step.set_policy(policy);
  }

  Batch batch_of(const std::vector<Request>& requests) {
    Batch batch;
    for (std::size_t i = 0; i < requests.size(); ++i) {
      if (sequences.size() <= i) sequences.push_back(cache.create());
      cache.reserve(sequences[i], requests[i].rows);
      add_request(batch, cache, sequences[i], requests[i].rows, requests[i].sparse);
    }
    return batch;
  }

  void run(const Batch& batch, LayerData& data) {
    log_sum_exp.assign(static_cast<std::size_t>(batch.num_rows()) * data.input.num_q_heads, -99.0F);
    step.begin(batch, data.input.num_q_heads);
    device.launches.clear();
    device.copies = 0;
    step.run(data.input.layer, rows_of(data), data.input.scale);
  }

  cuda::DeviceRows rows_of(LayerData& data) {
    cuda::DeviceRows rows;
    rows.q = data.input.q;
    rows.k = data.input.k;
    rows.v = data.input.v;
    rows.out = data.input.out;
    rows.log_sum_exp = log_sum_exp.data();
    rows.q_stride = data.input.q_stride;
    rows.k_stride = data.input.k_stride;
    rows.v_stride = data.input.v_stride;
    rows.out_stride = data.input.out_stride;
    return rows;
  }

  KvCache cache;
  RecordingDevice device;
  cuda::DeviceStep step;
  std::vector<SequenceId> sequences;
  std::vector<float> log_sum_exp;
};

}  // namespace quest::test
