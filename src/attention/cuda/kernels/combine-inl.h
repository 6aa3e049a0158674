// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "attention/cuda/kernels/rows-inl.h"
#include "attention/cuda/kernels/warp-inl.h"

// normalise and combine: from the scores of each query head to one score a page for the group, as
// src/selection/combine_scores.h defines it. After a platform header.

namespace quest::cuda {

inline constexpr int kNormaliseThreads = 256;
inline constexpr int kNormaliseWarps = kNormaliseThreads / kWarp;
/// One page each of a part.
inline constexpr int kCombineThreads = kScorePart;

struct NormaliseShared {
  float warps[kNormaliseWarps];
};

/// Sum of x over the block, the same in all threads; the order of the terms is fixed.
__device__ inline float block_sum(float x, NormaliseShared& shared) {
  x = warp_sum(x);
  if (thread_of_block() % kWarp == 0) shared.warps[thread_of_block() / kWarp] = x;
  __syncthreads();
  float sum = 0;
  for (int i = 0; i < kNormaliseWarps; ++i) sum += shared.warps[i];
  __syncthreads();  // `warps` is written again
  return sum;
}

__device__ inline float block_max(float x, NormaliseShared& shared) {
  x = warp_max(x);
  if (thread_of_block() % kWarp == 0) shared.warps[thread_of_block() / kWarp] = x;
  __syncthreads();
  float max = shared.warps[0];
  for (int i = 1; i < kNormaliseWarps; ++i) max = fmaxf(max, shared.warps[i]);
  __syncthreads();
  return max;
}

__device__ inline bool is_infinite(float x) {
  return (__float_as_uint(x) & 0x7FFFFFFFU) == 0x7F800000U;
}

/// The normaliser of each query head's softmax, over the pages that are free to choose. Blocks take
/// (row, KV head, query head) in turn.
// Included once a program, like all kernels. NOLINTNEXTLINE(misc-definitions-in-headers)
__global__ void __launch_bounds__(kNormaliseThreads) normalise(LayerArgs args) {
  QUEST_SHARED(NormaliseShared, shared);
  const std::int32_t heads = args.shape.num_kv_heads;
  const std::int32_t end = scored_end(args);
  const std::int64_t work = static_cast<std::int64_t>(end - args.first_scored) * heads * args.group;
  for (std::int64_t i = block_of_grid(); i < work; i += blocks_of_grid()) {
    const auto h = static_cast<std::int32_t>(i % args.group);
    const auto head = static_cast<std::int32_t>(i / args.group % heads);
    const auto index = static_cast<std::int32_t>(args.first_scored + i / args.group / heads);
    const Row& row = args.rows[index];
    if (!is_scored(args, row, head)) continue;
    const ForcedPages forced = forced_of(args, row, head);
    const float* scores = list_scores(args, index, head) + h * args.scores_stride;
    // A NaN is dropped here and carried by `combine`.
    float most = __uint_as_float(0xFF800000U);
    for (std::int32_t p = forced.sink_end + thread_of_block(); p < forced.recent_begin;
         p += kNormaliseThreads) {
      most = fmaxf(most, scores[p]);
    }
    const float top = block_max(most, shared);
    // Infinite: the pages that hold it share the vote.
    const bool shared_vote = is_infinite(top);
    float mine = 0;
    for (std::int32_t p = forced.sink_end + thread_of_block(); p < forced.recent_begin;
         p += kNormaliseThreads) {
      mine += shared_vote ? (scores[p] == top ? 1.0F : 0.0F) : expf(args.scale * (scores[p] - top));
    }
    const float sum = block_sum(mine, shared);
    if (thread_of_block() == 0) args.normalisers[i] = {top, logf(sum)};
  }
}

/// log-probability of a page under the softmax of one query head.
__device__ inline float log_probability(float score, const Normaliser& of, float scale) {
  if (is_infinite(of.top)) {
    return score == of.top ? -of.log_sum : __uint_as_float(0xFF800000U);
  }
  return scale * (score - of.top) - of.log_sum;
}

/// log Σ_heads of the probabilities of a page: its logarithm, so that pages far below the best do
/// not tie at an underflowed zero.
__device__ inline float sum_of_votes(const float* score, std::int64_t stride, int group,
                                     const Normaliser* normalisers, float scale) {
  float top = __uint_as_float(0xFF800000U);
  for (int h = 0; h < group; ++h) {
    top = fmaxf(top, log_probability(score[h * stride], normalisers[h], scale));
  }
  if (is_infinite(top)) return top;  // no head gives the page anything: -inf - -inf would be NaN
  float sum = 0;
  for (int h = 0; h < group; ++h) {
    sum += expf(log_probability(score[h * stride], normalisers[h], scale) - top);
  }
  return top + logf(sum);
}

__device__ inline float mean_over_heads(const float* score, std::int64_t stride, int group) {
  float sum = score[0];
  for (int h = 1; h < group; ++h) sum += score[h * stride];
  return sum / static_cast<float>(group);
}

/// Writes the group's score of every page behind the scores of its heads: NaN where one of those
/// is, and of forced pages nothing else. Blocks take (part, KV head) pairs in turn, as `score`
/// does.
// Included once a program, like all kernels. NOLINTNEXTLINE(misc-definitions-in-headers)
__global__ void __launch_bounds__(kCombineThreads) combine(LayerArgs args) {
  const ScoredParts parts = scored_parts(args);
  for (std::int64_t i = block_of_grid(); i < parts.count; i += blocks_of_grid()) {
    const ScoredPart part = scored_part(args, parts, i);
    const std::int32_t index = part.index;
    const std::int32_t head = part.head;
    const Row& row = args.rows[index];
    const std::int32_t page = part.first_page + thread_of_block();
    if (!is_scored(args, row, head) || page >= row.num_pages) continue;
    float* const scores = list_scores(args, index, head);
    const float* const mine = scores + page;
    bool nan = false;
    for (int h = 0; h < args.group; ++h) {
      const float score = mine[h * args.scores_stride];
      nan = nan || score != score;
    }
    const ForcedPages forced = forced_of(args, row, head);
    float combined = 0;
    if (nan) {
      combined = __uint_as_float(0x7FC00000U);
    } else if (page >= forced.sink_end && page < forced.recent_begin) {
      combined =
          args.mode == GroupMode::kGroupSoftmax
              ? sum_of_votes(mine, args.scores_stride, args.group,
                             args.normalisers +
                                 list_index(args, index - args.first_scored, head) * args.group,
                             args.scale)
              : mean_over_heads(mine, args.scores_stride, args.group);
    }
    scores[args.group * args.scores_stride + page] = combined;
  }
}

}  // namespace quest::cuda
