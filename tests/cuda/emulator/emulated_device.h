// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "attention/cuda/device.h"

namespace quest::emulator {

struct DeviceOptions {
  int multiprocessors = 2;
  int resident_blocks = 4;  ///< of any kernel, that one of them works on at a time
  std::int64_t memory = std::int64_t{1} << 34;  ///< bytes that may be allocated
};

/// A device whose kernels are the GPU's own, run by the emulator. Its memory starts as NaN.
std::unique_ptr<cuda::Device> make_device(const DeviceOptions& options = {});

}  // namespace quest::emulator
