// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

// What every online softmax needs. After a platform header.

namespace quest::cuda {

__device__ inline float minus_infinity() { return __uint_as_float(0xFF800000U); }

__device__ inline bool is_infinite(float x) {
  return (__float_as_uint(x) & 0x7FFFFFFFU) == 0x7F800000U;
}

/// 1 / sum; 0 for a row that saw nothing, whose o is 0 too.
__device__ inline float inverse_or_zero(float sum) { return sum == 0 ? 0.0F : 1.0F / sum; }

__device__ inline float exponential(float x) { return exp2f(x * 1.44269504F); }

}  // namespace quest::cuda
