// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "attention/cuda/device.h"
#include "attention/cuda/device_step.h"
#include "quest/attention.h"

namespace quest::cuda {

/// The attention operator on a device, for callers whose rows are in host memory. `cache` must be
/// empty and outlive the backend. Throws InvalidArgument and Error as DevicePool and DeviceStep do.
std::unique_ptr<AttentionBackend> make_backend(KvCache& cache, SelectionPolicy policy,
                                               std::unique_ptr<Device> device,
                                               const Tuning& tuning = {});

}  // namespace quest::cuda
