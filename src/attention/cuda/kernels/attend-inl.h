// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "attention/cuda/kernels/attend_tile-inl.h"
#include "attention/cuda/kernels/mma_tile-inl.h"
#include "attention/cuda/kernels/splits-inl.h"

// attend: decode attention over lists of pages. After a platform header.

namespace quest::cuda {

/// One split of the list of a (row, KV head).
struct ListSplit {
  std::int32_t row = 0;
  std::int32_t head = 0;
  std::int64_t partial = -1;  ///< see Split
  PageRun run;

  __device__ bool whole() const { return partial < 0; }
};

__device__ inline ListSplit find_list_split(const LayerArgs& args, std::int32_t index) {
  const std::int32_t heads = args.shape.num_kv_heads;
  const Split found = find_split(args.list_splits, args.counts->rows * heads, index,
                                 [&](std::int32_t list) { return list_length(args, list); });
  ListSplit split;
  split.row = found.list / heads;
  split.head = found.list % heads;
  split.partial = found.partial;

  const Row& row = args.rows[split.row];
  const bool scored = is_scored(args, row, split.head);
  split.run.list = scored ? args.lists + found.list * args.list_stride + found.first_page : nullptr;
  split.run.first = found.first_page;
  split.run.table = args.table + row.table;
  split.run.head = split.head;
  // The row's own page is always the last of its list; all others are full.
  const std::int32_t unused = (1 << args.shape.page_shift) - row.tail_tokens;
  split.run.tokens =
      ((found.end_page - found.first_page) << args.shape.page_shift) - (found.last ? unused : 0);
  return split;
}

/// Attention of splits of small groups, each complete or as its part of (o, max, sum) (SPEC S5.2,
/// S5.4).
template <class Element, int D, int Heads>
__global__ void __launch_bounds__(kAttendThreads) attend(LayerArgs args) {
  using Shared = AttendShared<D, Heads>;
  QUEST_DYNAMIC_SHARED(Shared, shared);
  const int thread = thread_of_block();
  const std::int32_t splits = args.list_splits.indptr[args.counts->rows * args.shape.num_kv_heads];
  for (std::int32_t i = block_of_grid(); i < splits; i += blocks_of_grid()) {
    const ListSplit split = find_list_split(args, i);
    const float* q = args.q + head_offset(args, args.q_stride, split.row, split.head);
    for (int j = thread; j < args.group * D; j += kAttendThreads) shared.q[j / D][j % D] = q[j];
    if (thread < args.group) shared.visible[thread] = split.run.tokens;
    float o[Heads][2];
    attend_run<Element>(args, split.run, args.group, shared, o);

    const std::int64_t place = split.partial * args.group;
    float* const out = split.whole()
                           ? args.out + head_offset(args, args.out_stride, split.row, split.head)
                           : args.list_splits.o + place * D;
    QUEST_UNROLL
    for (int h = 0; h < Heads; ++h) {
      if (h >= args.group || thread >= D / 2) break;
      const float factor = split.whole() ? inverse_or_zero(shared.sum[h]) : 1.0F;
      out[h * D + 2 * thread] = o[h][0] * factor;
      out[h * D + 2 * thread + 1] = o[h][1] * factor;
    }
    if (thread < args.group) {
      if (!split.whole()) {
        args.list_splits.max[place + thread] = shared.max[thread];
        args.list_splits.sum[place + thread] = shared.sum[thread];
      } else if (args.log_sum_exp != nullptr) {
        args.log_sum_exp[list_index(args, split.row, split.head) * args.group + thread] =
            shared.max[thread] + logf(shared.sum[thread]);
      }
    }
    __syncthreads();  // the next split writes shared memory
  }
}

/// Warps share the tokens of a tile, 16 each. Of the longest heads two, which is what shared memory
/// has room for.
template <int D>
using LargeGroupShared = MmaShared<D, 1, D <= 128 ? 4 : 2>;

/// The same for large groups, on tensor cores. Here the maximum of a part is what its weights are
/// relative to, which merges alike.
template <class Element, int D>
__global__ void __launch_bounds__(LargeGroupShared<D>::kThreads)
    attend_large_group(LayerArgs args) {
  using Shared = LargeGroupShared<D>;
  QUEST_DYNAMIC_SHARED(Shared, shared);
  const int thread = thread_of_block();
  const std::int32_t splits = args.list_splits.indptr[args.counts->rows * args.shape.num_kv_heads];
  for (std::int32_t i = block_of_grid(); i < splits; i += blocks_of_grid()) {
    const ListSplit split = find_list_split(args, i);
    if (thread < kMmaRows) shared.visible[thread] = thread < args.group ? split.run.tokens : 0;
    const float* const q = args.q + head_offset(args, args.q_stride, split.row, split.head);
    const auto query_of = [&](int h) { return h < args.group ? q + h * D : nullptr; };
    load_queries<Element>(args.scale, query_of, shared);
    RowState<D> state;
    attend_rows<Element>(args, split.run, shared, state);

    const std::int64_t place = split.partial * args.group;
    float* const out = split.whole()
                           ? args.out + head_offset(args, args.out_stride, split.row, split.head)
                           : args.list_splits.o + place * D;
    RowOutput outputs[2];
    QUEST_UNROLL
    for (int j = 0; j < 2; ++j) {
      const int h = thread % kWarp / 4 + 8 * j;
      if (h >= args.group) continue;
      outputs[j].o = out + h * D;
      outputs[j].factor = split.whole() ? inverse_or_zero(state.sum[j]) : 1.0F;
      if (thread >= kWarp || thread % 4 != 0) continue;
      if (!split.whole()) {
        args.list_splits.max[place + h] = state.base[j];
        args.list_splits.sum[place + h] = state.sum[j];
      } else if (args.log_sum_exp != nullptr) {
        args.log_sum_exp[list_index(args, split.row, split.head) * args.group + h] =
            state.base[j] + logf(state.sum[j]);
      }
    }
    store_rows<Shared>(state, outputs);
    __syncthreads();  // the next split writes shared memory
  }
}

}  // namespace quest::cuda
