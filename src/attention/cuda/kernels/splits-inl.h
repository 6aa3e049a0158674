// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "attention/cuda/kernels/rows-inl.h"
#include "attention/cuda/kernels/softmax-inl.h"
#include "attention/cuda/kernels/warp-inl.h"

// How the pages of all lists and tiles are shared out between the blocks of the attend and prefill
// kernels, and how what they find is merged. After a platform header.

namespace quest::cuda {

inline constexpr int kSplitsThreads = 256;

/// Pages that the attend kernel reads for one (row, KV head); 0 if the prefill kernel serves it.
__device__ inline std::int32_t list_length(const LayerArgs& args, std::int32_t list) {
  const std::int32_t heads = args.shape.num_kv_heads;
  const Row& row = args.rows[list / heads];
  if (is_scored(args, row, list % heads)) return args.list_count[list];
  return row.in_tile != 0 ? 0 : row.num_pages;
}

/// The last row of a tile that the prefill kernel serves for a KV head, which sees the most; null
/// if all of them select.
__device__ inline const Row* longest_row(const LayerArgs& args, const Tile& tile,
                                         std::int32_t head) {
  for (std::int32_t i = tile.first_row + tile.rows - 1; i >= tile.first_row; --i) {
    if (is_tiled(args, args.rows[i], head)) return &args.rows[i];
  }
  return nullptr;
}

/// Pages that the prefill kernel reads for one (tile, KV head).
__device__ inline std::int32_t tile_length(const LayerArgs& args, std::int32_t list) {
  const std::int32_t heads = args.shape.num_kv_heads;
  const Row* const row = longest_row(args, args.tiles[list / heads], list % heads);
  return row != nullptr ? row->num_pages : 0;
}

struct SplitsShared {
  int warps[kSplitsThreads / kWarp];
};

/// Cuts lists into splits of at most so many pages each that there are no more than `plan.most`
/// beyond one a list: equal work for every block, however ragged the batch. A list of n > 1 splits
/// holds more than n / 2 of them whole, and all lists hold no more than `plan.most`, so there are
/// at most twice as many partial results. All threads of the block take part.
template <class LengthOf>
__device__ inline void plan_lists(const SplitPlan& plan, std::int32_t lists,
                                  const LengthOf& length_of, SplitsShared& shared) {
  const std::int32_t per_thread = (lists + kSplitsThreads - 1) / kSplitsThreads;
  const std::int32_t first = thread_of_block() * per_thread;
  const std::int32_t end = first + per_thread < lists ? first + per_thread : lists;

  int pages = 0;
  for (std::int32_t i = first; i < end; ++i) pages += length_of(i);
  int total = 0;
  block_sum_before<kSplitsThreads>(pages, shared.warps, total);
  const std::int32_t share = (total + plan.most - 1) / plan.most;
  const std::int32_t split = share > plan.least_pages ? share : plan.least_pages;

  int splits = 0;
  int partials = 0;
  for (std::int32_t i = first; i < end; ++i) {
    const std::int32_t mine = (length_of(i) + split - 1) / split;
    splits += mine;
    partials += mine > 1 ? mine : 0;
  }
  int all_splits = 0;
  int all_partials = 0;
  splits = block_sum_before<kSplitsThreads>(splits, shared.warps, all_splits);
  partials = block_sum_before<kSplitsThreads>(partials, shared.warps, all_partials);
  for (std::int32_t i = first; i < end; ++i) {
    const std::int32_t mine = (length_of(i) + split - 1) / split;
    plan.indptr[i] = splits;
    plan.partial_indptr[i] = partials;
    splits += mine;
    partials += mine > 1 ? mine : 0;
  }
  if (thread_of_block() != 0) return;
  plan.indptr[lists] = all_splits;
  plan.partial_indptr[lists] = all_partials;
  *plan.pages = split;
}

/// One block plans the lists, a second one, where there are tiles, what those read.
// Included once a program, like all kernels. NOLINTNEXTLINE(misc-definitions-in-headers)
__global__ void __launch_bounds__(kSplitsThreads) plan_splits(LayerArgs args) {
  QUEST_SHARED(SplitsShared, shared);
  const std::int32_t heads = args.shape.num_kv_heads;
  if (block_of_grid() == 0) {
    plan_lists(
        args.list_splits, args.counts->rows * heads,
        [&](std::int32_t i) { return list_length(args, i); }, shared);
  } else {
    plan_lists(
        args.tile_splits, args.counts->tiles * heads,
        [&](std::int32_t i) { return tile_length(args, i); }, shared);
  }
}

/// One split, and where its result goes.
struct Split {
  std::int32_t list = 0;
  std::int32_t first_page = 0;  ///< of the list
  std::int32_t end_page = 0;
  bool last = false;          ///< of its list
  std::int64_t partial = -1;  ///< number of its partial result; -1: the list has no other split

  __device__ bool whole() const { return partial < 0; }
};

template <class LengthOf>
__device__ inline Split find_split(const SplitPlan& plan, std::int32_t lists, std::int32_t index,
                                   const LengthOf& length_of) {
  Split split;
  split.list = find_owner(plan.indptr, 0, lists, index);
  const std::int32_t before = index - plan.indptr[split.list];
  const std::int32_t length = length_of(split.list);
  split.first_page = before * *plan.pages;
  split.end_page =
      split.first_page + *plan.pages < length ? split.first_page + *plan.pages : length;
  split.last = split.end_page == length;
  const std::int32_t partials = plan.partial_indptr[split.list];
  if (plan.partial_indptr[split.list + 1] > partials) split.partial = partials + before;
  return split;
}

/// Merges row `row` of the `rows` of partial results [first, end), channel `channel`; returns its
/// log-sum-exp.
template <int D>
__device__ inline float merge_row(const SplitPlan& plan, std::int32_t first, std::int32_t end,
                                  int rows, int row, int channel, float* out) {
  const auto place_of = [&](std::int32_t i) { return static_cast<std::int64_t>(i) * rows + row; };
  float max = minus_infinity();
  for (std::int32_t i = first; i < end; ++i) max = fmaxf(max, plan.max[place_of(i)]);
  float sum = 0;
  float o = 0;
  for (std::int32_t i = first; i < end; ++i) {
    const std::int64_t place = place_of(i);
    // The row saw nothing there: exp(-inf - -inf) would be NaN, and so may be what others saw. A
    // row of NaN has no maximum either, but its sum is NaN.
    if (plan.sum[place] == 0) continue;
    const float factor = expf(plan.max[place] - max);
    sum += factor * plan.sum[place];
    o += factor * plan.o[place * D + channel];
  }
  *out = o * inverse_or_zero(sum);
  return max + logf(sum);
}

/// Merges what has several splits. Threads take one channel each, blocks one query head of a row.
template <int D>
__global__ void __launch_bounds__(D) merge_splits(LayerArgs args) {
  const int channel = thread_of_block();
  const std::int32_t heads = args.shape.num_kv_heads;
  const auto merge = [&](const SplitPlan& plan, std::int32_t list, int rows, int row_of_plan,
                         std::int32_t row, std::int32_t head, int h) {
    const float log_sum_exp = merge_row<D>(
        plan, plan.partial_indptr[list], plan.partial_indptr[list + 1], rows, row_of_plan, channel,
        args.out + head_offset(args, args.out_stride, row, head) + h * D + channel);
    if (channel == 0 && args.log_sum_exp != nullptr) {
      args.log_sum_exp[list_index(args, row, head) * args.group + h] = log_sum_exp;
    }
  };

  const std::int32_t lists = args.counts->rows * heads;
  // Most steps have nothing to merge in one of the two plans.
  std::int64_t work =
      args.list_splits.partial_indptr[lists] > 0 ? std::int64_t{lists} * args.group : 0;
  for (std::int64_t i = block_of_grid(); i < work; i += blocks_of_grid()) {
    const auto list = static_cast<std::int32_t>(i / args.group);
    const auto h = static_cast<int>(i % args.group);
    const std::int32_t* const partials = args.list_splits.partial_indptr + list;
    if (partials[0] == partials[1]) continue;
    merge(args.list_splits, list, args.group, h, list / heads, list % heads, h);
  }
  const std::int32_t tiles = args.counts->tiles * heads;
  work = tiles > 0 && args.tile_splits.partial_indptr[tiles] > 0 ? std::int64_t{tiles} * kTileHeads
                                                                 : 0;
  for (std::int64_t i = block_of_grid(); i < work; i += blocks_of_grid()) {
    const auto list = static_cast<std::int32_t>(i / kTileHeads);
    const auto r = static_cast<int>(i % kTileHeads);
    const std::int32_t* const partials = args.tile_splits.partial_indptr + list;
    const Tile& tile = args.tiles[list / heads];
    const std::int32_t row = tile.first_row + r / args.group;
    if (partials[0] == partials[1] || r >= tile.rows * args.group) continue;
    if (!is_tiled(args, args.rows[row], list % heads)) continue;
    merge(args.tile_splits, list, kTileHeads, r, row, list % heads, r % args.group);
  }
}

}  // namespace quest::cuda
