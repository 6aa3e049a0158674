// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "attention/cuda/kernels/rows-inl.h"
#include "attention/cuda/kernels/softmax-inl.h"
#include "attention/cuda/kernels/warp-inl.h"

// combine: from the scores of each query head to one score a page for the group, as
// src/selection/combine_scores.h defines it. After a platform header.

namespace quest::cuda {

/// One page each.
inline constexpr int kCombineThreads = kCombinePart;

/// Of the softmax over scale · score of one query head: log-probabilities are
/// scale · (score - top) - log_sum; where `top` is infinite, the pages that hold it have -log_sum
/// each and the others nothing.
struct Normaliser {
  float top;
  float log_sum;
};

struct CombineShared {
  Normaliser normalisers[kMaxGroup];
};

/// Joins what `score` has found of each query head's softmax in the parts of a row, a warp a head.
/// The order of the terms is fixed.
__device__ inline void join_softmax(const LayerArgs& args, std::int32_t index, std::int32_t head,
                                    CombineShared& shared) {
  const std::int32_t heads = args.shape.num_kv_heads;
  const std::int32_t before = args.part_indptr[args.first_scored];
  const std::int32_t first = args.part_indptr[index] - before;
  const std::int32_t end = args.part_indptr[index + 1] - before;
  const int lane = thread_of_block() % kWarp;
  for (int h = thread_of_block() / kWarp; h < args.group; h += kCombineThreads / kWarp) {
    const auto part_at = [&](std::int32_t i) {
      return args.softmax_parts[(static_cast<std::int64_t>(i) * heads + head) * args.group + h];
    };
    float top = minus_infinity();
    for (std::int32_t i = first + lane; i < end; i += kWarp) top = fmaxf(top, part_at(i).top);
    top = warp_max(top);
    // Infinite: the pages that hold it share the vote.
    const bool shared_vote = is_infinite(top);
    float sum = 0;
    for (std::int32_t i = first + lane; i < end; i += kWarp) {
      const SoftmaxPart part = part_at(i);
      const float factor =
          shared_vote ? (part.top == top ? 1.0F : 0.0F) : expf(args.scale * (part.top - top));
      sum += factor * part.sum;
    }
    sum = warp_sum(sum);
    if (lane == 0) shared.normalisers[h] = {top, logf(sum)};
  }
}

/// log-probability of a page under the softmax of one query head.
__device__ inline float log_probability(float score, const Normaliser& of, float scale) {
  if (is_infinite(of.top)) {
    return score == of.top ? -of.log_sum : minus_infinity();
  }
  return scale * (score - of.top) - of.log_sum;
}

/// log Σ_heads of the probabilities of a page: its logarithm, so that pages far below the best do
/// not tie at an underflowed zero.
__device__ inline float sum_of_votes(const float* score, std::int64_t stride, int group,
                                     const Normaliser* normalisers, float scale) {
  float top = minus_infinity();
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

/// The group's score of a page: NaN where one of its heads' is, and of forced pages nothing else.
__device__ inline float combine_page(const LayerArgs& args, const ForcedPages& forced,
                                     std::int32_t page, const float* scores,
                                     const Normaliser* normalisers) {
  const float* const mine = scores + page;
  bool nan = false;
  for (int h = 0; h < args.group; ++h) {
    const float score = mine[h * args.scores_stride];
    nan = nan || score != score;
  }
  if (nan) return __uint_as_float(0x7FC00000U);
  if (page < forced.sink_end || page >= forced.recent_begin) return 0;
  if (args.mode == GroupMode::kQuota) return mean_over_heads(mine, args.scores_stride, args.group);
  return sum_of_votes(mine, args.scores_stride, args.group, normalisers, args.scale);
}

/// Writes the group's score of every page behind the scores of its heads. Blocks take
/// (part of kCombinePart pages, row, KV head) in turn.
// Included once a program, like all kernels. NOLINTNEXTLINE(misc-definitions-in-headers)
__global__ void __launch_bounds__(kCombineThreads) combine(LayerArgs args) {
  QUEST_SHARED(CombineShared, shared);
  const std::int32_t heads = args.shape.num_kv_heads;
  const std::int64_t parts = num_combine_parts(args);
  const std::int64_t work = (scored_end(args) - args.first_scored) * heads * parts;
  for (std::int64_t i = block_of_grid(); i < work; i += blocks_of_grid()) {
    const auto head = static_cast<std::int32_t>(i / parts % heads);
    const auto index = static_cast<std::int32_t>(args.first_scored + i / parts / heads);
    const auto first = static_cast<std::int32_t>(i % parts) * kCombinePart;
    const Row& row = args.rows[index];
    if (!is_scored(args, row, head) || first >= row.num_pages) continue;
    if (args.mode == GroupMode::kGroupSoftmax) {
      __syncthreads();  // the normalisers before may still be read
      join_softmax(args, index, head, shared);
      __syncthreads();
    }
    const std::int32_t page = first + thread_of_block();
    if (page >= row.num_pages) continue;
    float* const scores = list_scores(args, index, head);
    scores[args.group * args.scores_stride + page] =
        combine_page(args, forced_of(args, row, head), page, scores, shared.normalisers);
  }
}

}  // namespace quest::cuda
