// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "attention/cuda/arguments.h"
#include "attention/cuda/kernels/warp-inl.h"
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

/// End of the rows that `score` and `combine` work on, counted from `first_scored`.
__device__ inline std::int32_t scored_end(const LayerArgs& args) {
  return args.end_scored < args.counts->rows ? args.end_scored : args.counts->rows;
}

/// The (part of a row, KV head) pairs of all rows that select; blocks take them in turn, so the
/// grid need not know how long the rows are.
struct ScoredParts {
  std::int32_t end = 0;  ///< of the rows
  std::int32_t first = 0;
  std::int64_t count = 0;
};

__device__ inline ScoredParts scored_parts(const LayerArgs& args) {
  ScoredParts parts;
  parts.end = scored_end(args);
  if (args.first_scored >= parts.end) return parts;
  parts.first = args.part_indptr[args.first_scored];
  parts.count = static_cast<std::int64_t>(args.part_indptr[parts.end] - parts.first) *
                args.shape.num_kv_heads;
  return parts;
}

struct ScoredPart {
  std::int32_t index = 0;  ///< of the row
  std::int32_t head = 0;
  std::int32_t first_page = 0;
};

__device__ inline ScoredPart scored_part(const LayerArgs& args, const ScoredParts& parts,
                                         std::int64_t i) {
  const std::int32_t heads = args.shape.num_kv_heads;
  const auto part = static_cast<std::int32_t>(parts.first + i / heads);
  ScoredPart found;
  found.index = find_owner(args.part_indptr, args.first_scored, parts.end, part);
  found.head = static_cast<std::int32_t>(i % heads);
  found.first_page = (part - args.part_indptr[found.index]) * kScorePart;
  return found;
}

}  // namespace quest::cuda
