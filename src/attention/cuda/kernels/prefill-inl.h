// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "attention/cuda/kernels/attend_tile-inl.h"

// Prefill: dense causal attention of several rows of one request at once. After a platform header.

namespace quest::cuda {

/// Blocks take (tile, KV head) pairs in turn. The block's rows are (position, query head) pairs;
/// each sees the tokens up to its own position, and keys and values are read once for all of them.
template <class Element, int D>
__global__ void __launch_bounds__(kAttendThreads) prefill(LayerArgs args) {
  using Shared = AttendShared<D, kTileHeads>;
  QUEST_DYNAMIC_SHARED(Shared, shared);
  const int thread = thread_of_block();
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
      const Row& row = args.rows[tile.first_row + j];
      // A row that selects is served by the attend kernel: it sees nothing here.
      const std::int32_t tokens =
          is_tiled(args, row, head)
              ? ((row.num_pages - 1) << args.shape.page_shift) + row.tail_tokens
              : 0;
      run.tokens = tokens > run.tokens ? tokens : run.tokens;
      if (thread < args.group) shared.visible[j * args.group + thread] = tokens;
      const float* q = args.q + head_offset(args, args.q_stride, tile.first_row + j, head);
      for (int x = thread; x < args.group * D; x += kAttendThreads) {
        shared.q[j * args.group + x / D][x % D] = q[x];
      }
    }
    float o[kTileHeads][2];
    attend_run<Element>(args, run, rows, shared, o);

    QUEST_UNROLL
    for (int r = 0; r < kTileHeads; ++r) {
      if (r >= rows || shared.visible[r] == 0) continue;
      const std::int32_t row = tile.first_row + r / args.group;
      float* const out =
          args.out + head_offset(args, args.out_stride, row, head) + r % args.group * D;
      const float factor = inverse_or_zero(shared.sum[r]);
      if (thread < D / 2) {
        out[2 * thread] = o[r][0] * factor;
        out[2 * thread + 1] = o[r][1] * factor;
      }
      if (thread == 0 && args.log_sum_exp != nullptr) {
        args.log_sum_exp[list_index(args, row, head) * args.group + r % args.group] =
            shared.max[r] + logf(shared.sum[r]);
      }
    }
    __syncthreads();  // the next tile writes shared memory
  }
}

}  // namespace quest::cuda
