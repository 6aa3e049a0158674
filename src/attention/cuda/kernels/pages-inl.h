// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "attention/cuda/kernels/rows-inl.h"
#include "attention/cuda/kernels/warp-inl.h"

// Copies of pages, and changes of page tables. After a platform header.

namespace quest::cuda {

inline constexpr int kCopyThreads = 128;

/// Copies keys and values of one page, one block a KV head: the cache's copy on write. The cache
/// copies a page to cut it or to write to it, and either makes its summary anew.
// Included once a program, like all kernels. NOLINTNEXTLINE(misc-definitions-in-headers)
__global__ void __launch_bounds__(kCopyThreads) copy_page(LayerArgs args) {
  const PoolShape& shape = args.shape;
  const std::int64_t elements = static_cast<std::int64_t>(shape.head_dim) << shape.page_shift;
  const std::int64_t from = page_offset(shape, args.copy_from, block_of_grid());
  const std::int64_t to = page_offset(shape, args.copy_to, block_of_grid());
  for (std::int64_t i = thread_of_block(); i < elements; i += kCopyThreads) {
    args.pool.k[to + i] = args.pool.k[from + i];
    args.pool.v[to + i] = args.pool.v[from + i];
  }
}

/// Brings the page tables up to date, a thread an entry.
// Included once a program, like all kernels. NOLINTNEXTLINE(misc-definitions-in-headers)
__global__ void __launch_bounds__(kPatchThreads) patch_tables(LayerArgs args) {
  const int i = block_of_grid() * kPatchThreads + thread_of_block();
  if (i < args.num_patches) args.patched[args.patches[i].place] = args.patches[i].page;
}

}  // namespace quest::cuda
