// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "attention/cuda/kernels/elements-inl.h"
#include "attention/cuda/kernels/rows-inl.h"
#include "attention/cuda/kernels/warp-inl.h"

// score: query coefficients times page summaries. After a platform header.

namespace quest::cuda {

inline constexpr int kScoreThreads = 256;
/// Pages of a part that one warp scores.
inline constexpr int kScoreWarpPages = kScorePart / (kScoreThreads / kWarp);

/// Plain summaries: eight elements in 16 bytes.
template <class Element>
struct PlainSummary {
  static constexpr int kElements = 8;
  __device__ static uint4 load(const LayerPool& pool, std::int64_t element) {
    return *reinterpret_cast<const uint4*>(pool.summaries + element);
  }
  __device__ static float scale(const LayerPool&, std::int64_t, int) { return 1; }
  __device__ static void values(const uint4& bits, float (&out)[kElements]) {
    widen<Element>(bits, out);
  }
};

/// 8-bit summaries: sixteen elements in 16 bytes, half of the channels that share a scale.
struct Q8Summary {
  static constexpr int kElements = 16;
  __device__ static uint4 load(const LayerPool& pool, std::int64_t element) {
    return *reinterpret_cast<const uint4*>(pool.q8_summaries + element);
  }
  __device__ static float scale(const LayerPool& pool, std::int64_t summary, int block) {
    return F16::widen(pool.summary_scales[summary + block]);
  }
  __device__ static void values(const uint4& bits, float (&out)[kElements]) { widen_q8(bits, out); }
};

/// Coefficients of the score rows of one (row, KV head), as src/selection/fold_query.h has them:
/// [score_rows, 2, head_dim]. All threads of the block take part.
template <int D>
__device__ inline void fold_queries(const LayerArgs& args, const float* q, float* coefficients) {
  const int folded = args.mode == GroupMode::kGroupMean ? args.group : 1;
  const float share = 0.5F / static_cast<float>(folded);
  for (int i = thread_of_block(); i < args.score_rows * D; i += kScoreThreads) {
    const int row = i / D;
    const int channel = i % D;
    float low = 0;
    float high = 0;
    for (int h = row * folded; h < (row + 1) * folded; ++h) {
      const float x = q[h * D + channel];
      const float width = args.beta * fabsf(x);
      low += x - width;
      high += x + width;
    }
    coefficients[row * 2 * D + channel] = share * low;
    coefficients[row * 2 * D + D + channel] = share * high;
  }
}

/// Scores of up to kScoreWarpPages pages from `first` on, one warp. Lanes share a summary, 16 bytes
/// each; it is read once for all score rows. `scores`: [score_rows, scores_stride].
template <class Summary, int D>
__device__ inline void score_pages(const LayerArgs& args, const Row& row, std::int32_t head,
                                   std::int32_t first, const float* coefficients, float* scores) {
  constexpr int kPieces = 2 * D / Summary::kElements;  // of one summary
  constexpr int kLanes = kPieces < kWarp ? kPieces : kWarp;
  constexpr int kLoads = kPieces / kLanes;
  constexpr int kSideBySide = kWarp / kLanes;
  constexpr int kPages = kScoreWarpPages / kSideBySide;  // of one lane
  const int lane = thread_of_block() % kWarp;
  const int piece = lane % kLanes;

  uint4 bits[kPages][kLoads];
  float scale[kPages][kLoads];
  QUEST_UNROLL
  for (int n = 0; n < kPages; ++n) {
    const std::int32_t page = first + n * kSideBySide + lane / kLanes;
    QUEST_UNROLL
    for (int i = 0; i < kLoads; ++i) {
      bits[n][i] = uint4{0, 0, 0, 0};
      scale[n][i] = 0;
      if (page >= row.num_pages) continue;
      const std::int64_t summary = summary_index(args.shape, args.table[row.table + page], head);
      const int element = (i * kLanes + piece) * Summary::kElements;
      bits[n][i] = Summary::load(args.pool, summary * 2 * D + element);
      scale[n][i] = Summary::scale(args.pool, summary * (D / kWarp), element % D / kWarp);
    }
  }
  for (int r = 0; r < args.score_rows; ++r) {
    float sums[kPages];
    QUEST_UNROLL
    for (int n = 0; n < kPages; ++n) {
      sums[n] = 0;
      QUEST_UNROLL
      for (int i = 0; i < kLoads; ++i) {
        const float* c = coefficients + r * 2 * D + (i * kLanes + piece) * Summary::kElements;
        float values[Summary::kElements];
        Summary::values(bits[n][i], values);
        float sum = 0;
        QUEST_UNROLL
        for (int j = 0; j < Summary::kElements; ++j) sum += c[j] * values[j];
        sums[n] += scale[n][i] * sum;
      }
    }
    const float score = transposed_sum<kPages, kLanes>(sums, lane);
    const std::int32_t page = first + piece / (kLanes / kPages) * kSideBySide + lane / kLanes;
    if (piece % (kLanes / kPages) == 0 && page < row.num_pages) {
      scores[r * args.scores_stride + page] = score;
    }
  }
}

/// Scores the pages of all rows that select. Blocks take (part, KV head) pairs in turn, so the grid
/// need not know how long the rows are.
template <class Summary, int D>
__global__ void __launch_bounds__(kScoreThreads) score(LayerArgs args) {
  QUEST_DYNAMIC_SHARED(float, first_coefficient);
  float* const coefficients = &first_coefficient;  // [score_rows, 2, D]
  const ScoredParts parts = scored_parts(args);
  for (std::int64_t i = block_of_grid(); i < parts.count; i += blocks_of_grid()) {
    const ScoredPart part = scored_part(args, parts, i);
    const std::int32_t index = part.index;
    const std::int32_t head = part.head;
    const Row& row = args.rows[index];
    if (!is_scored(args, row, head)) continue;
    __syncthreads();  // the coefficients before may still be read
    fold_queries<D>(args, args.q + head_offset(args, args.q_stride, index, head), coefficients);
    __syncthreads();
    float* const scores = list_scores(args, index, head);
    const std::int32_t first = part.first_page + thread_of_block() / kWarp * kScoreWarpPages;
    score_pages<Summary, D>(args, row, head, first, coefficients, scores);
  }
}

}  // namespace quest::cuda
