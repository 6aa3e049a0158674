// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "attention/cuda/kernels/mma_tile-inl.h"
#include "attention/cuda/kernels/splits-inl.h"

// Prefill: dense causal attention of several rows of one request at once. After a platform header.

namespace quest::cuda {

template <int D>
using PrefillShared = MmaShared<D, kTileHeads / kMmaRows, 1>;

/// Tokens that a row sees as one of a tile; 0: it selects, and the attend kernel serves it.
__device__ inline std::int32_t tiled_tokens(const LayerArgs& args, const Row& row,
                                            std::int32_t head) {
  if (!is_tiled(args, row, head)) return 0;
  return ((row.num_pages - 1) << args.shape.page_shift) + row.tail_tokens;
}

/// One split of what a tile reads for a KV head.
struct TileSplit {
  Tile tile;
  std::int32_t head = 0;
  std::int32_t first_token = 0;  ///< of the run
  std::int64_t partial = -1;     ///< see Split
  PageRun run;

  __device__ bool whole() const { return partial < 0; }
};

__device__ inline TileSplit find_tile_split(const LayerArgs& args, std::int32_t index) {
  const std::int32_t heads = args.shape.num_kv_heads;
  const std::int32_t shift = args.shape.page_shift;
  const Split found = find_split(args.tile_splits, args.counts->tiles * heads, index,
                                 [&](std::int32_t list) { return tile_length(args, list); });
  TileSplit split;
  split.tile = args.tiles[found.list / heads];
  split.head = found.list % heads;
  split.first_token = found.first_page << shift;
  split.partial = found.partial;
  const Row& row = *longest_row(args, split.tile, split.head);
  const std::int32_t seen = tiled_tokens(args, row, split.head);
  const std::int32_t end = found.end_page << shift;
  split.run.first = found.first_page;
  split.run.table = args.table + row.table;
  split.run.head = split.head;
  split.run.tokens = (end < seen ? end : seen) - split.first_token;
  return split;
}

/// Tokens of the split that a row sees.
__device__ inline std::int32_t visible_tokens(const LayerArgs& args, const TileSplit& split,
                                              std::int32_t row) {
  const std::int32_t seen = tiled_tokens(args, args.rows[row], split.head) - split.first_token;
  const std::int32_t most = seen < split.run.tokens ? seen : split.run.tokens;
  return most > 0 ? most : 0;
}

/// Blocks take splits in turn. The block's rows are (position, query head) pairs; each sees the
/// tokens up to its own position, and keys and values are read once for all of them.
template <class Element, int D>
__global__ void __launch_bounds__(PrefillShared<D>::kThreads) prefill(LayerArgs args) {
  using Shared = PrefillShared<D>;
  QUEST_DYNAMIC_SHARED(Shared, shared);
  const SplitPlan& plan = args.tile_splits;
  const std::int32_t splits = plan.indptr[args.counts->tiles * args.shape.num_kv_heads];
  for (std::int32_t i = block_of_grid(); i < splits; i += blocks_of_grid()) {
    // The last tiles of a request are the longest: they go first.
    const TileSplit split = find_tile_split(args, splits - 1 - i);
    const Tile& tile = split.tile;
    const int rows = tile.rows * args.group;
    for (int r = thread_of_block(); r < Shared::kRows; r += Shared::kThreads) {
      shared.visible[r] =
          r < rows ? visible_tokens(args, split, tile.first_row + r / args.group) : 0;
    }
    const auto query_of = [&](int r) {
      if (r >= rows) return static_cast<const float*>(nullptr);
      return args.q +
             head_offset(args, args.q_stride, tile.first_row + r / args.group, split.head) +
             r % args.group * D;
    };
    load_queries<Element>(args.scale, query_of, shared);
    RowState<D> state;
    attend_rows<Element>(args, split.run, shared, state);

    RowOutput outputs[2];
    QUEST_UNROLL
    for (int j = 0; j < 2; ++j) {
      const int lane = thread_of_block() % kWarp;
      const int r = thread_of_block() / kWarp * kMmaRows + lane / 4 + 8 * j;
      if (!split.whole()) {
        if (r >= rows) continue;
        const std::int64_t place = split.partial * kTileHeads + r;
        outputs[j].o = plan.o + place * D;
        if (lane % 4 != 0) continue;
        plan.max[place] = state.base[j];
        plan.sum[place] = state.sum[j];
        continue;
      }
      if (shared.visible[r] == 0) continue;
      const std::int32_t row = tile.first_row + r / args.group;
      const int h = r % args.group;
      outputs[j].o = args.out + head_offset(args, args.out_stride, row, split.head) + h * D;
      outputs[j].factor = inverse_or_zero(state.sum[j]);
      if (lane % 4 == 0 && args.log_sum_exp != nullptr) {
        args.log_sum_exp[list_index(args, row, split.head) * args.group + h] =
            state.base[j] + logf(state.sum[j]);
      }
    }
    store_rows<Shared>(state, outputs);
    __syncthreads();  // the next split writes shared memory
  }
}

}  // namespace quest::cuda
