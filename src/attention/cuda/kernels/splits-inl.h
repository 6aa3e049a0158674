// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "attention/cuda/kernels/rows-inl.h"
#include "attention/cuda/kernels/warp-inl.h"

// How the pages of all lists are shared out between the blocks of the attend kernel. After a
// platform header.

namespace quest::cuda {

inline constexpr int kSplitsThreads = 256;

/// Pages that the attend kernel reads for one (row, KV head); 0 if the prefill kernel serves it.
__device__ inline std::int32_t list_length(const LayerArgs& args, std::int64_t list) {
  const std::int32_t heads = args.shape.num_kv_heads;
  const Row& row = args.rows[list / heads];
  const auto head = static_cast<std::int32_t>(list % heads);
  if (is_scored(args, row, head)) return args.list_count[list];
  return row.in_tile != 0 ? 0 : row.num_pages;
}

struct SplitsShared {
  int warps[kSplitsThreads / kWarp];
};

/// Cuts the lists into splits of at most so many pages each that there are no more than
/// `most_splits` beyond one a list: equal work for every block, however ragged the batch. One
/// block.
// Included once a program, like all kernels. NOLINTNEXTLINE(misc-definitions-in-headers)
__global__ void __launch_bounds__(kSplitsThreads) plan_splits(LayerArgs args) {
  QUEST_SHARED(SplitsShared, shared);
  const std::int32_t lists = args.counts->rows * args.shape.num_kv_heads;
  const std::int32_t per_thread = (lists + kSplitsThreads - 1) / kSplitsThreads;
  const std::int32_t first = thread_of_block() * per_thread;
  const std::int32_t end = first + per_thread < lists ? first + per_thread : lists;

  int pages = 0;
  for (std::int32_t i = first; i < end; ++i) pages += list_length(args, i);
  int total = 0;
  block_sum_before<kSplitsThreads>(pages, shared.warps, total);
  const std::int32_t share = (total + args.most_splits - 1) / args.most_splits;
  const std::int32_t split = share > args.least_split_pages ? share : args.least_split_pages;

  int splits = 0;
  for (std::int32_t i = first; i < end; ++i) {
    splits += (list_length(args, i) + split - 1) / split;
  }
  int all = 0;
  int before = block_sum_before<kSplitsThreads>(splits, shared.warps, all);
  for (std::int32_t i = first; i < end; ++i) {
    args.split_indptr[i] = before;
    before += (list_length(args, i) + split - 1) / split;
  }
  if (thread_of_block() != 0) return;
  args.split_indptr[lists] = all;
  *args.split_pages = split;
}

}  // namespace quest::cuda
