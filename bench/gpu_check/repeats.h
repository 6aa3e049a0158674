// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>

#include "attention/cuda/device.h"

namespace quest::gpu_check {

/// A step of decode that is run again and again: more rows than a device has multiprocessors, so
/// that their blocks are not all there at once, and so many pages that several blocks select.
struct RepeatedStep {
  std::int32_t rows = 400;
  std::int32_t pages = 7000;
  int repeats = 12500;  ///< eight launches each: 10^5 of them
  int compared_every = 50;
};

/// Runs the step and compares page lists and outputs, bit for bit, with those of its first run;
/// scores tie at the boundary, so that timing would show (SPEC S4.8):
/// {"repeats", "compared", "failed"}.
nlohmann::json check_repeats(cuda::Device& device, const RepeatedStep& repeated);

}  // namespace quest::gpu_check
