// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "attention/cuda/device.h"

namespace quest::cuda {

inline constexpr const char* kNoDevice =
    "CUDA: no device is there, or its driver is too old; use the CPU";

/// GPUs that the CUDA runtime sees; 0 without a driver.
int device_count();
/// Throws Error without a device or for an architecture that has no kernels, InvalidArgument for an
/// index that does not exist.
std::unique_ptr<Device> open_device(int index);
/// The device's stream, a cudaStream_t. `device` must come from open_device.
void* stream_of(Device& device);

}  // namespace quest::cuda
