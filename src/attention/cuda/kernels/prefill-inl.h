// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "attention/cuda/kernels/mma_tile-inl.h"

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

/// Blocks take (tile, KV head) pairs in turn. The block's rows are (position, query head) pairs;
/// each sees the tokens up to its own position, and keys and values are read once for all of them.
template <class Element, int D>
__global__ void __launch_bounds__(PrefillShared<D>::kThreads) prefill(LayerArgs args) {
  using Shared = PrefillShared<D>;
  QUEST_DYNAMIC_SHARED(Shared, shared);
  const std::int32_t heads = args.shape.num_kv_heads;
  const std::int64_t work = static_cast<std::int64_t>(args.counts->tiles) * heads;
  for (std::int64_t i = block_of_grid(); i < work; i += blocks_of_grid()) {
    const auto head = static_cast<std::int32_t>(i % heads);
    // The last tiles of a request are the longest: they go first.
    const Tile& tile = args.tiles[args.counts->tiles - 1 - i / heads];
    const int rows = tile.rows * args.group;
    PageRun run;
    run.table = args.table + args.rows[tile.first_row].table;
    run.head = head;
    for (int j = 0; j < tile.rows; ++j) {
      const std::int32_t tokens = tiled_tokens(args, args.rows[tile.first_row + j], head);
      run.tokens = tokens > run.tokens ? tokens : run.tokens;
    }
    if (run.tokens == 0) continue;
    for (int r = thread_of_block(); r < Shared::kRows; r += Shared::kThreads) {
      shared.visible[r] =
          r < rows ? tiled_tokens(args, args.rows[tile.first_row + r / args.group], head) : 0;
    }
    const auto query_of = [&](int r) {
      if (r >= rows) return static_cast<const float*>(nullptr);
      return args.q + head_offset(args, args.q_stride, tile.first_row + r / args.group, head) +
             r % args.group * D;
    };
    load_queries<Element>(args.scale, query_of, shared);
    RowState<D> state;
    attend_rows<Element>(args, run, shared, state);

    RowOutput outputs[2];
    QUEST_UNROLL
    for (int j = 0; j < 2; ++j) {
      const int lane = thread_of_block() % kWarp;
      const int r = thread_of_block() / kWarp * kMmaRows + lane / 4 + 8 * j;
      if (shared.visible[r] == 0) continue;
      const std::int32_t row = tile.first_row + r / args.group;
      const int h = r % args.group;
      outputs[j].o = args.out + head_offset(args, args.out_stride, row, head) + h * D;
      outputs[j].factor = inverse_or_zero(state.sum[j]);
      if (lane % 4 == 0 && args.log_sum_exp != nullptr) {
        args.log_sum_exp[list_index(args, row, head) * args.group + h] =
            state.base[j] + logf(state.sum[j]);
      }
    }
    store_rows<Shared>(state, outputs);
    __syncthreads();  // the next tile writes shared memory
  }
}

}  // namespace quest::cuda
