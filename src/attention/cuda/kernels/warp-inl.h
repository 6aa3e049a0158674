// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

// Sums, maxima and searches within a warp or block. After a platform header.

namespace quest::cuda {

inline constexpr int kWarp = 32;
inline constexpr unsigned kAllLanes = 0xFFFFFFFFU;

__device__ inline int thread_of_block() { return static_cast<int>(threadIdx.x); }
__device__ inline int block_of_grid() { return static_cast<int>(blockIdx.x); }
__device__ inline int blocks_of_grid() { return static_cast<int>(gridDim.x); }

__device__ inline float warp_sum(float x) {
  QUEST_UNROLL
  for (int mask = kWarp / 2; mask > 0; mask /= 2) x += __shfl_xor_sync(kAllLanes, x, mask);
  return x;
}

__device__ inline float warp_max(float x) {
  QUEST_UNROLL
  for (int mask = kWarp / 2; mask > 0; mask /= 2) {
    x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, mask));
  }
  return x;
}

/// Sum of the lanes before this one.
__device__ inline int warp_sum_before(int x, int lane) {
  int sum = x;
  QUEST_UNROLL
  for (int step = 1; step < kWarp; step *= 2) {
    const int below = __shfl_up_sync(kAllLanes, sum, static_cast<unsigned>(step));
    if (lane >= step) sum += below;
  }
  return sum - x;
}

/// Sums of N values over each run of `Lanes` lanes, all at once: each step halves the values that a
/// lane still carries, so N sums cost N - 1 + log2(Lanes / N) exchanges instead of N · log2(Lanes).
/// Returns the sum of value (lane % Lanes) / (Lanes / N). N ≤ Lanes, powers of two.
template <int N, int Lanes>
__device__ inline float transposed_sum(float (&values)[N], int lane) {
  int mask = Lanes / 2;
  QUEST_UNROLL
  for (int half = N / 2; half > 0; half /= 2) {
    const bool upper = (lane & mask) != 0;
    QUEST_UNROLL
    for (int i = 0; i < half; ++i) {
      const float mine = upper ? values[i + half] : values[i];
      const float theirs = upper ? values[i] : values[i + half];
      values[i] = mine + __shfl_xor_sync(kAllLanes, theirs, mask);
    }
    mask /= 2;
  }
  QUEST_UNROLL
  for (; mask > 0; mask /= 2) values[0] += __shfl_xor_sync(kAllLanes, values[0], mask);
  return values[0];
}

/// Sum of the threads before this one, in a block of kThreads; `total` is the sum of all. `warps`:
/// shared scratch, one entry a warp. Every thread of the block calls it.
template <int kThreads>
__device__ inline int block_sum_before(int x, int (&warps)[kThreads / kWarp], int& total) {
  const int lane = thread_of_block() % kWarp;
  const int warp = thread_of_block() / kWarp;
  const int before = warp_sum_before(x, lane);
  if (lane == kWarp - 1) warps[warp] = before + x;
  __syncthreads();
  int offset = 0;
  total = 0;
  for (int i = 0; i < kThreads / kWarp; ++i) {
    if (i == warp) offset = total;
    total += warps[i];
  }
  __syncthreads();  // `warps` may be written again
  return offset + before;
}

/// The i with indptr[i] ≤ item < indptr[i + 1], among [first, end); there is one.
__device__ inline std::int32_t find_owner(const std::int32_t* indptr, std::int32_t first,
                                          std::int32_t end, std::int32_t item) {
  while (end - first > 1) {
    const std::int32_t middle = first + (end - first) / 2;
    if (indptr[middle] <= item) {
      first = middle;
    } else {
      end = middle;
    }
  }
  return first;
}

}  // namespace quest::cuda
