// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "attention/cuda/arguments.h"
#include "selection/forced_pages.h"

// How rows and KV heads are served, as every kernel sees it. After a platform header.

namespace quest::cuda {

/// Whether the row's pages are scored and selected; otherwise it reads all of them.
__device__ inline bool is_scored(const LayerArgs& args, const Row& row, std::int32_t head) {
  return row.sparse != 0 && row.num_pages > args.budgets[head].crossover;
}

/// Whether a row that reads everything is served by the prefill kernel.
__device__ inline bool is_tiled(const LayerArgs& args, const Row& row, std::int32_t head) {
  return row.in_tile != 0 && !is_scored(args, row, head);
}

__device__ inline std::int64_t list_index(const LayerArgs& args, std::int32_t row,
                                          std::int32_t head) {
  return static_cast<std::int64_t>(row) * args.shape.num_kv_heads + head;
}

/// The pages that a scored row reads whatever their scores.
__device__ inline ForcedPages forced_of(const LayerArgs& args, const Row& row, std::int32_t head) {
  const std::int64_t kv_len =
      (static_cast<std::int64_t>(row.num_pages - 1) << args.shape.page_shift) + row.tail_tokens;
  return forced_pages(kv_len, args.shape.page_size(), args.sinks, args.window,
                      args.budgets[head].pages);
}

/// Scores of one (row, KV head) of the pass: [score_rows, scores_stride].
__device__ inline float* list_scores(const LayerArgs& args, std::int32_t index, std::int32_t head) {
  return args.scores + list_index(args, index - args.first_scored, head) * args.scores_per_list;
}

/// First of the query heads of a KV head in a row of q or out.
__device__ inline std::int64_t head_offset(const LayerArgs& args, std::int64_t stride,
                                           std::int32_t row, std::int32_t head) {
  return row * stride + static_cast<std::int64_t>(head) * args.group * args.shape.head_dim;
}

/// Elements before a page of one head in k or v.
__device__ inline std::int64_t page_offset(const PoolShape& shape, std::int32_t page,
                                           std::int32_t head) {
  return ((static_cast<std::int64_t>(page) * shape.num_kv_heads + head) << shape.page_shift) *
         shape.head_dim;
}

/// Page summaries before that of one page and head.
__device__ inline std::int64_t summary_index(const PoolShape& shape, std::int32_t page,
                                             std::int32_t head) {
  return head * shape.num_pages + page;
}

}  // namespace quest::cuda
