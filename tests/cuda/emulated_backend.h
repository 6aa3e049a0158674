// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <utility>

#include "attention/cuda/cuda_backend.h"
#include "cuda/emulator/emulated_device.h"

namespace quest::test {

/// The CUDA backend on an emulated device.
inline std::unique_ptr<AttentionBackend> make_emulated(KvCache& cache, SelectionPolicy policy) {
  return cuda::make_backend(cache, std::move(policy), emulator::make_device());
}

/// The same, but lists are cut into many short splits and rows score a few at a time.
inline std::unique_ptr<AttentionBackend> make_emulated_splitting(KvCache& cache,
                                                                 SelectionPolicy policy) {
  cuda::Tuning tuning;
  tuning.most_splits = 64;
  tuning.split_tokens = 1;
  tuning.score_floats = 1;  // one row
  return cuda::make_backend(cache, std::move(policy), emulator::make_device(), tuning);
}

}  // namespace quest::test
