// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "attention/cuda/kernels/elements-inl.h"
#include "attention/cuda/kernels/rows-inl.h"
#include "attention/cuda/kernels/softmax-inl.h"
#include "attention/cuda/kernels/warp-inl.h"

// score: query coefficients times page summaries, and with group-softmax each part's share of the
// softmax of every query head. After a platform header.

namespace quest::cuda {

inline constexpr int kScoreThreads = 256;
/// Pages of a part that one warp scores.
inline constexpr int kScoreWarpPages = kScorePart / (kScoreThreads / kWarp);

template <int N>
__device__ inline float dot(const float* c, const float (&values)[N]) {
  float sum = 0;
  QUEST_UNROLL
  for (int j = 0; j < N; ++j) sum += c[j] * values[j];
  return sum;
}

// Ways to store a summary: kPieces loads of 16 bytes, and what a piece adds to the score. Scales
// are those of the piece, `c` the coefficients of a score row, [2, D].

/// Minimum and maximum in the type of the keys: eight elements in 16 bytes.
template <class Element, int D>
struct PlainSummary {
  static constexpr int kElements = 8;
  static constexpr int kPieces = 2 * D / kElements;
  static constexpr bool kBox = false;
  struct Scales {};

  __device__ static uint4 load(const LayerPool& pool, std::int64_t summary, int piece) {
    return *reinterpret_cast<const uint4*>(pool.summaries + summary * 2 * D + piece * kElements);
  }
  __device__ static Scales scales(const LayerPool&, std::int64_t, int) { return {}; }
  __device__ static float score(const uint4& bits, const Scales&, const float* c, int piece) {
    float values[kElements];
    widen<Element>(bits, values);
    return dot(c + piece * kElements, values);
  }
};

/// The same in 8-bit integers: sixteen elements in 16 bytes, half of the channels that share a
/// scale.
template <int D>
struct Q8Summary {
  static constexpr int kElements = 16;
  static constexpr int kPieces = 2 * D / kElements;
  static constexpr bool kBox = false;
  using Scales = float;

  __device__ static uint4 load(const LayerPool& pool, std::int64_t summary, int piece) {
    return *reinterpret_cast<const uint4*>(pool.rounded_summaries + summary * 2 * D +
                                           piece * kElements);
  }
  __device__ static Scales scales(const LayerPool& pool, std::int64_t summary, int piece) {
    const int block = piece * kElements % D / kWarp;
    return F16::widen(pool.summary_scales[summary * (D / kWarp) + block]);
  }
  __device__ static float score(const uint4& bits, const Scales& scale, const float* c, int piece) {
    float values[kElements];
    widen_q8(bits, values);
    return scale * dot(c + piece * kElements, values);
  }
};

/// Centre and half-width of sixteen channels in 16 bytes.
template <int D>
struct Q4Summary {
  static constexpr int kElements = 16;
  static constexpr int kPieces = D / kElements;
  static constexpr bool kBox = true;
  struct Scales {
    float centre = 0;
    float half = 0;
  };

  __device__ static uint4 load(const LayerPool& pool, std::int64_t summary, int piece) {
    return *reinterpret_cast<const uint4*>(pool.rounded_summaries + summary * D +
                                           piece * kElements);
  }
  __device__ static Scales scales(const LayerPool& pool, std::int64_t summary, int piece) {
    constexpr int kBlocks = D / kWarp;
    const std::uint16_t* const of_block =
        pool.summary_scales + summary * 2 * kBlocks + piece * kElements / kWarp;
    // The upper bits of a byte are 8 times the centre.
    return {0.125F * F16::widen(of_block[0]), F16::widen(of_block[kBlocks])};
  }
  __device__ static float score(const uint4& bits, const Scales& scales, const float* c,
                                int piece) {
    const uint4 upper{bits.x & 0xF8F8F8F8U, bits.y & 0xF8F8F8F8U, bits.z & 0xF8F8F8F8U,
                      bits.w & 0xF8F8F8F8U};
    const uint4 lower{bits.x & 0x07070707U, bits.y & 0x07070707U, bits.z & 0x07070707U,
                      bits.w & 0x07070707U};
    float values[kElements];
    widen_q8(upper, values);
    const float centres = dot(c + piece * kElements, values);
    widen_q8(lower, values);
    return scales.centre * centres + scales.half * dot(c + D + piece * kElements, values);
  }
};

/// Coefficients of the score rows of one (row, KV head), as src/selection/fold_query.h has them:
/// [score_rows, 2, head_dim], of minimum and maximum or, for a box, of centre and half-width. All
/// threads of the block take part.
template <int D, bool kBox>
__device__ inline void fold_queries(const LayerArgs& args, const float* q, float* coefficients) {
  const int folded = args.mode == GroupMode::kGroupMean ? args.group : 1;
  const float share = (kBox ? 1.0F : 0.5F) / static_cast<float>(folded);
  for (int i = thread_of_block(); i < args.score_rows * D; i += kScoreThreads) {
    const int row = i / D;
    const int channel = i % D;
    float first = 0;
    float second = 0;
    for (int h = row * folded; h < (row + 1) * folded; ++h) {
      const float x = q[h * D + channel];
      const float width = args.beta * fabsf(x);
      first += kBox ? x : x - width;
      second += kBox ? width : x + width;
    }
    coefficients[row * 2 * D + channel] = share * first;
    coefficients[row * 2 * D + D + channel] = share * second;
  }
}

/// Scores of up to kScoreWarpPages pages from `first` on, one warp. Lanes share a summary, 16 bytes
/// each; it is read once for all score rows. `scores`: [score_rows, scores_stride]. `kept`, if not
/// null: the same from page `first` on, [score_rows, kScorePart].
template <class Summary, int D>
__device__ inline void score_pages(const LayerArgs& args, const Row& row, std::int32_t head,
                                   std::int32_t first, const float* coefficients, float* scores,
                                   float* kept) {
  constexpr int kPieces = Summary::kPieces;
  constexpr int kLanes = kPieces < kWarp ? kPieces : kWarp;
  constexpr int kLoads = kPieces / kLanes;
  constexpr int kSideBySide = kWarp / kLanes;
  constexpr int kPages = kScoreWarpPages / kSideBySide;  // of one lane
  const int lane = thread_of_block() % kWarp;
  const int piece = lane % kLanes;

  uint4 bits[kPages][kLoads];
  typename Summary::Scales scales[kPages][kLoads];
  QUEST_UNROLL
  for (int n = 0; n < kPages; ++n) {
    const std::int32_t page = first + n * kSideBySide + lane / kLanes;
    QUEST_UNROLL
    for (int i = 0; i < kLoads; ++i) {
      bits[n][i] = uint4{0, 0, 0, 0};
      scales[n][i] = {};
      if (page >= row.num_pages) continue;
      const std::int64_t summary = summary_index(args.shape, args.table[row.table + page], head);
      bits[n][i] = Summary::load(args.pool, summary, i * kLanes + piece);
      scales[n][i] = Summary::scales(args.pool, summary, i * kLanes + piece);
    }
  }
  for (int r = 0; r < args.score_rows; ++r) {
    float sums[kPages];
    QUEST_UNROLL
    for (int n = 0; n < kPages; ++n) {
      sums[n] = 0;
      QUEST_UNROLL
      for (int i = 0; i < kLoads; ++i) {
        const float* c = coefficients + r * 2 * D;
        sums[n] += Summary::score(bits[n][i], scales[n][i], c, i * kLanes + piece);
      }
    }
    const float score = transposed_sum<kPages, kLanes>(sums, lane);
    const std::int32_t page = first + piece / (kLanes / kPages) * kSideBySide + lane / kLanes;
    if (piece % (kLanes / kPages) == 0 && page < row.num_pages) {
      scores[r * args.scores_stride + page] = score;
      if (kept != nullptr) kept[r * kScorePart + page - first] = score;
    }
  }
}

/// What the pages of a part that are free to choose give to the softmax of each query head, a warp
/// a head. `scores`: [group, kScorePart] of the part. A NaN reaches the sum; `combine` reports it.
__device__ inline void begin_softmax(const LayerArgs& args, const ScoredPart& part,
                                     const float* scores, SoftmaxPart* out) {
  constexpr int kEach = kScorePart / kWarp;
  const ForcedPages forced = forced_of(args, args.rows[part.index], part.head);
  const int lane = thread_of_block() % kWarp;
  for (int h = thread_of_block() / kWarp; h < args.group; h += kScoreThreads / kWarp) {
    const float* const mine = scores + h * kScorePart + lane;
    bool is_free[kEach];
    float top = minus_infinity();
    QUEST_UNROLL
    for (int i = 0; i < kEach; ++i) {
      const std::int32_t page = part.first_page + i * kWarp + lane;
      is_free[i] = page >= forced.sink_end && page < forced.recent_begin;
      if (is_free[i]) top = fmaxf(top, mine[i * kWarp]);
    }
    top = warp_max(top);
    const bool shared_vote = is_infinite(top);
    float sum = 0;
    QUEST_UNROLL
    for (int i = 0; i < kEach; ++i) {
      if (!is_free[i]) continue;
      const float score = mine[i * kWarp];
      sum += shared_vote ? (score == top ? 1.0F : 0.0F) : expf(args.scale * (score - top));
    }
    sum = warp_sum(sum);
    if (lane == 0) out[h] = {top, sum};
  }
}

/// Floats of shared memory that `score` needs.
constexpr std::size_t score_shared_floats(const LayerArgs& args, int head_dim) {
  const int kept = args.mode == GroupMode::kGroupSoftmax ? kScorePart : 0;
  return static_cast<std::size_t>(args.score_rows) * (2 * head_dim + kept);
}

/// Scores the pages of all rows that select. Blocks take (part, KV head) pairs in turn, so the grid
/// need not know how long the rows are.
template <class Summary, int D>
__global__ void __launch_bounds__(kScoreThreads) score(LayerArgs args) {
  QUEST_DYNAMIC_SHARED(float, first_coefficient);
  float* const coefficients = &first_coefficient;  // [score_rows, 2, D]
  const bool softmax = args.mode == GroupMode::kGroupSoftmax;
  float* const kept = coefficients + args.score_rows * 2 * D;  // [score_rows, kScorePart]
  const ScoredParts parts = scored_parts(args);
  for (std::int64_t i = block_of_grid(); i < parts.count; i += blocks_of_grid()) {
    const ScoredPart part = scored_part(args, parts, i);
    const std::int32_t index = part.index;
    const std::int32_t head = part.head;
    const Row& row = args.rows[index];
    if (!is_scored(args, row, head)) continue;
    __syncthreads();  // what was in shared memory before may still be read
    fold_queries<D, Summary::kBox>(args, args.q + head_offset(args, args.q_stride, index, head),
                                   coefficients);
    __syncthreads();
    float* const scores = list_scores(args, index, head);
    const std::int32_t first = thread_of_block() / kWarp * kScoreWarpPages;
    score_pages<Summary, D>(args, row, head, part.first_page + first, coefficients, scores,
                            softmax ? kept + first : nullptr);
    if (!softmax) continue;
    __syncthreads();
    begin_softmax(args, part, kept, args.softmax_parts + i * args.group);
  }
}

}  // namespace quest::cuda
