// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

namespace quest::cli {

/// A well-mixed number of `x`: equal arguments give equal numbers on every machine.
std::uint64_t mixed(std::uint64_t x);

/// Uniform values of mean zero and this standard deviation: those at places first, first + 1 … of
/// the stream `seed`. A stream can be made in any pieces.
void fill_uniform(std::span<float> values, float deviation, std::uint64_t seed,
                  std::uint64_t first = 0);

}  // namespace quest::cli
