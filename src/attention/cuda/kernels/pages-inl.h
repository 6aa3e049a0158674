// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "attention/cuda/kernels/rows-inl.h"
#include "attention/cuda/kernels/warp-inl.h"

// Page copies. After a platform header.

namespace quest::cuda {

inline constexpr int kCopyThreads = 128;

template <class T>
__device__ inline void copy_elements(T* to, const T* from, std::int64_t count) {
  for (std::int64_t i = thread_of_block(); i < count; i += kCopyThreads) to[i] = from[i];
}

/// Copies keys, values and summary of one page, one block a KV head: the cache's copy on write.
// Included once a program, like all kernels. NOLINTNEXTLINE(misc-definitions-in-headers)
__global__ void __launch_bounds__(kCopyThreads) copy_page(LayerArgs args) {
  const PoolShape& shape = args.shape;
  const LayerPool& pool = args.pool;
  const std::int32_t head = block_of_grid();
  const std::int64_t elements = static_cast<std::int64_t>(shape.head_dim) << shape.page_shift;
  const std::int64_t from = page_offset(shape, args.copy_from, head);
  const std::int64_t to = page_offset(shape, args.copy_to, head);
  copy_elements(pool.k + to, pool.k + from, elements);
  copy_elements(pool.v + to, pool.v + from, elements);
  const std::int64_t old_summary = summary_index(shape, args.copy_from, head);
  const std::int64_t new_summary = summary_index(shape, args.copy_to, head);
  const std::int64_t bounds = 2 * shape.head_dim;
  if (shape.q8_summaries) {
    const std::int64_t scales = shape.head_dim / kWarp;
    copy_elements(pool.q8_summaries + new_summary * bounds,
                  pool.q8_summaries + old_summary * bounds, bounds);
    copy_elements(pool.summary_scales + new_summary * scales,
                  pool.summary_scales + old_summary * scales, scales);
  } else {
    copy_elements(pool.summaries + new_summary * bounds, pool.summaries + old_summary * bounds,
                  bounds);
  }
}

}  // namespace quest::cuda
