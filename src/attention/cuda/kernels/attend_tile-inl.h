// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "attention/cuda/kernels/elements-inl.h"
#include "attention/cuda/kernels/page_run-inl.h"
#include "attention/cuda/kernels/rows-inl.h"
#include "attention/cuda/kernels/softmax-inl.h"
#include "attention/cuda/kernels/warp-inl.h"

// Attention of the few query heads of a small group over one run of pages by one block, in float32.
// Keys and values come through shared memory once for all of them. After a platform header.

namespace quest::cuda {

inline constexpr int kAttendThreads = 128;
inline constexpr int kAttendWarps = kAttendThreads / kWarp;
/// Channels that one thread multiplies for one token.
inline constexpr int kPartChannels = 32;

/// Rows: query heads of the group, or (position, query head) pairs.
template <int D, int Rows>
struct AttendShared {
  static constexpr int kTokens = 4096 / D;  ///< of one tile; 8 KiB of keys
  static constexpr int kParts = D / kPartChannels;
  static constexpr int kTokenGroups = kAttendThreads / (D / 2);

  KvTiles<D, kTokens> tiles;
  float q[Rows][D];
  float dots[Rows][kParts][kTokens];  ///< of each part of the channels
  float weights[kTokens][Rows];       ///< exp(logit - max)
  float keep[Rows];                   ///< what the sums before are worth under the new maximum
  float max[Rows];
  float sum[Rows];
  std::int32_t visible[Rows];  ///< tokens of the run that the row sees
};

/// Products of a tile's keys with all rows. Each thread widens 32 channels of one token once.
template <class Element, int D, int Rows>
__device__ inline void multiply_keys(int rows, int stage, AttendShared<D, Rows>& shared) {
  using Shared = AttendShared<D, Rows>;
  const int t = thread_of_block() % Shared::kTokens;
  const int part = thread_of_block() / Shared::kTokens;
  float key[kPartChannels / 8][8];
  QUEST_UNROLL
  for (int i = 0; i < kPartChannels / 8; ++i) {
    widen<Element>(shared.tiles.k[stage][t][(part * (kPartChannels / 8) + i) ^ (t % 8)], key[i]);
  }
  QUEST_UNROLL
  for (int r = 0; r < Rows; ++r) {
    if (r >= rows) break;
    const float* q = shared.q[r] + part * kPartChannels;
    float dot = 0;
    QUEST_UNROLL
    for (int i = 0; i < kPartChannels / 8; ++i) {
      QUEST_UNROLL
      for (int j = 0; j < 8; ++j) dot += q[i * 8 + j] * key[i][j];
    }
    shared.dots[r][part][t] = dot;
  }
}

/// Online softmax: weights of a tile whose first token is `first` of the run, and what they do to
/// maximum and sum. One warp a row.
template <int D, int Rows>
__device__ inline void weigh_tile(int rows, std::int32_t first, float scale,
                                  AttendShared<D, Rows>& shared) {
  using Shared = AttendShared<D, Rows>;
  constexpr int kSteps = (Shared::kTokens + kWarp - 1) / kWarp;
  const int lane = thread_of_block() % kWarp;
  for (int r = thread_of_block() / kWarp; r < rows; r += kAttendWarps) {
    float logits[kSteps];
    float top = minus_infinity();
    QUEST_UNROLL
    for (int i = 0; i < kSteps; ++i) {
      const int t = i * kWarp + lane;
      logits[i] = minus_infinity();
      if (t < Shared::kTokens && first + t < shared.visible[r]) {
        float dot = 0;
        QUEST_UNROLL
        for (int part = 0; part < Shared::kParts; ++part) dot += shared.dots[r][part][t];
        logits[i] = scale * dot;
      }
      top = fmaxf(top, logits[i]);
    }
    const float before = shared.max[r];
    const float max = fmaxf(before, warp_max(top));
    // Nothing seen yet: exp(-inf - -inf) would be NaN.
    const float base = max == minus_infinity() ? 0.0F : max;
    float sum = 0;
    QUEST_UNROLL
    for (int i = 0; i < kSteps; ++i) {
      const int t = i * kWarp + lane;
      const float weight = expf(logits[i] - base);
      if (t < Shared::kTokens) shared.weights[t][r] = weight;
      sum += weight;
    }
    sum = warp_sum(sum);
    if (lane == 0) {
      const float keep = expf(before - base);
      shared.keep[r] = keep;
      shared.max[r] = max;
      shared.sum[r] = shared.sum[r] * keep + sum;
    }
  }
}

/// Adds a tile's weighted values. Threads take two channels each and share the tokens.
template <class Element, int D, int Rows>
__device__ inline void add_values(int rows, int tokens, int stage,
                                  const AttendShared<D, Rows>& shared, float (&o)[Rows][2]) {
  using Shared = AttendShared<D, Rows>;
  const int pair = thread_of_block() % (D / 2);
  QUEST_UNROLL
  for (int r = 0; r < Rows; ++r) {
    if (r >= rows) break;
    o[r][0] *= shared.keep[r];
    o[r][1] *= shared.keep[r];
  }
  for (int t = thread_of_block() / (D / 2); t < tokens; t += Shared::kTokenGroups) {
    const auto* pairs =
        reinterpret_cast<const std::uint32_t*>(&shared.tiles.v[stage][t][(pair / 4) ^ (t % 8)]);
    const std::uint32_t bits = pairs[pair % 4];
    const float low = Element::widen(static_cast<std::uint16_t>(bits & 0xFFFFU));
    const float high = Element::widen(static_cast<std::uint16_t>(bits >> 16));
    QUEST_UNROLL
    for (int r = 0; r < Rows; ++r) {
      if (r >= rows) break;
      // Not 0 · v: a value that the row does not see may be anything.
      const float weight = shared.weights[t][r];
      if (weight == 0) continue;
      o[r][0] += weight * low;
      o[r][1] += weight * high;
    }
  }
}

/// Sums o over the threads that shared the tokens; the first D / 2 threads hold the result.
template <int D, int Rows>
__device__ inline void gather_values(int rows, AttendShared<D, Rows>& shared, float (&o)[Rows][2]) {
  constexpr int kGroups = AttendShared<D, Rows>::kTokenGroups;
  if constexpr (kGroups > 1) {
    static_assert((kGroups - 1) * Rows * D * sizeof(float) <= sizeof(shared.tiles.k));
    auto* const others =
        reinterpret_cast<float*>(&shared.tiles.k[0][0][0]);  // no key is needed any more
    const int pair = thread_of_block() % (D / 2);
    const int group = thread_of_block() / (D / 2);
    QUEST_UNROLL
    for (int r = 0; r < Rows; ++r) {
      if (r >= rows || group == 0) break;
      float* const mine = others + ((group - 1) * Rows + r) * D + 2 * pair;
      mine[0] = o[r][0];
      mine[1] = o[r][1];
    }
    __syncthreads();
    QUEST_UNROLL
    for (int r = 0; r < Rows; ++r) {
      if (r >= rows || group > 0) break;
      for (int g = 0; g < kGroups - 1; ++g) {
        const float* const theirs = others + (g * Rows + r) * D + 2 * pair;
        o[r][0] += theirs[0];
        o[r][1] += theirs[1];
      }
    }
  }
}

/// Attention of `rows` rows over a run. Before: shared.q and shared.visible of each row. After:
/// shared.max and shared.sum, and o, not divided by sum, two channels each in the first D / 2
/// threads. All threads of the block take part.
template <class Element, int D, int Rows>
__device__ inline void attend_run(const LayerArgs& args, const PageRun& run, int rows,
                                  AttendShared<D, Rows>& shared, float (&o)[Rows][2]) {
  QUEST_UNROLL
  for (int r = 0; r < Rows; ++r) o[r][0] = o[r][1] = 0;
  if (thread_of_block() < rows) {
    shared.max[thread_of_block()] = minus_infinity();
    shared.sum[thread_of_block()] = 0;
  }
  __syncthreads();
  visit_tiles<kAttendThreads>(args, run, shared.tiles,
                              [&](int stage, std::int32_t first, int tokens) {
                                multiply_keys<Element>(rows, stage, shared);
                                __syncthreads();
                                weigh_tile(rows, first, args.scale, shared);
                                __syncthreads();
                                add_values<Element>(rows, tokens, stage, shared, o);
                              });
  gather_values(rows, shared, o);
}

}  // namespace quest::cuda
