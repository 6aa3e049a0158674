// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "attention/cuda/kernels/elements-inl.h"
#include "attention/cuda/kernels/mma_rows-inl.h"
#include "attention/cuda/kernels/page_run-inl.h"
#include "attention/cuda/kernels/softmax-inl.h"

// Attention of tiles of 16 query rows over one run of pages on tensor cores: the heart of prefill
// and of attend for large groups. After a platform header.
//
// Queries and weights are float32, keys and values f16 or bf16. Each query and each weight is split
// into two parts of the element type (`split`), and both parts are multiplied: sums of products in
// float32 that are as exact as the queries' 22 (f16) or 16 (bf16) bits.

namespace quest::cuda {

/// The warp's 16 rows as its lanes see them.
struct WarpRows {
  std::int32_t visible[2];  ///< of the lane's two rows
  float factor[2];
  std::int32_t least;  ///< tokens that all rows see, those that see none left out
  std::int32_t most;   ///< tokens that any row sees
};

template <class Shared>
__device__ inline WarpRows find_rows(int row_warp, const Shared& shared) {
  constexpr std::int32_t kAll = 0x7FFFFFFF;
  const int lane = thread_of_block() % kWarp;
  WarpRows rows;
  rows.least = kAll;
  rows.most = 0;
  QUEST_UNROLL
  for (int i = 0; i < 2; ++i) {
    const int r = row_warp * kMmaRows + lane / 4 + 8 * i;
    rows.visible[i] = shared.visible[r];
    rows.factor[i] = shared.factor[r];
    const std::int32_t seen = rows.visible[i];
    rows.most = seen > rows.most ? seen : rows.most;
    rows.least = seen > 0 && seen < rows.least ? seen : rows.least;
  }
  QUEST_UNROLL
  for (int mask = 4; mask < kWarp; mask *= 2) {
    const std::int32_t most = __shfl_xor_sync(kAllLanes, rows.most, mask);
    const std::int32_t least = __shfl_xor_sync(kAllLanes, rows.least, mask);
    rows.most = most > rows.most ? most : rows.most;
    rows.least = least < rows.least ? least : rows.least;
  }
  return rows;
}

/// Products of the warp's rows with its tokens of a tile, those from `token` on: C fragments of
/// eight tokens each.
template <class Element, class Shared>
__device__ inline void key_products(int row_warp, int stage, int token, const Shared& shared,
                                    float (&s)[Shared::kWarpTokens / 8][4]) {
  const int lane = thread_of_block() % kWarp;
  const int r = row_warp * kMmaRows + lane % 16;
  QUEST_UNROLL
  for (int n = 0; n < Shared::kWarpTokens / 8; ++n) s[n][0] = s[n][1] = s[n][2] = s[n][3] = 0;
  QUEST_UNROLL_BY(4)
  for (int piece = 0; piece < Shared::kPieces; piece += 2) {
    std::uint32_t q[2][4];
    QUEST_UNROLL
    for (int part = 0; part < 2; ++part) {
      load_matrices(q[part], &shared.q[part][r][(piece + lane / 16) ^ (r % 8)]);
    }
    QUEST_UNROLL
    for (int n = 0; n < Shared::kWarpTokens / 8; n += 2) {
      // Channels [0, 8) and [8, 16) of eight tokens, then of the next eight.
      const int t = token + 8 * n + lane / 16 * 8 + lane % 8;
      std::uint32_t k[4];
      load_matrices(k, &shared.tiles.k[stage][t][(piece + lane / 8 % 2) ^ (t % 8)]);
      QUEST_UNROLL
      for (int part = 0; part < 2; ++part) {
        multiply_add<Element::kBf16>(s[n], q[part], k[0], k[1]);
        multiply_add<Element::kBf16>(s[n + 1], q[part], k[2], k[3]);
      }
    }
  }
}

/// The base lies this far below the greatest logit, so that weights use the upper exponents of f16
/// and small ones keep their bits: up to 2^7, and up to 2^14 where a huge logit rounds the
/// difference up.
inline constexpr float kHeadroom = 4.8520303F;  // 7 ln 2

/// Online softmax: turns products into weights, the first of the fragment being that of token
/// `first` of the run, and says what the sums before are worth under the new base.
template <int D, int Fragments>
__device__ inline void weigh(const WarpRows& rows, std::int32_t first, float (&s)[Fragments][4],
                             RowState<D>& state, float (&keep)[2]) {
  const std::int32_t mine = first + 2 * (thread_of_block() % 4);
  QUEST_UNROLL
  for (int i = 0; i < 2; ++i) {
    float top = minus_infinity();
    QUEST_UNROLL
    for (int n = 0; n < Fragments; ++n) {
      QUEST_UNROLL
      for (int j = 0; j < 2; ++j) {
        float& x = s[n][2 * i + j];
        x = mine + 8 * n + j < rows.visible[i] ? rows.factor[i] * x : minus_infinity();
        top = fmaxf(top, x);
      }
    }
    top = fmaxf(top, __shfl_xor_sync(kAllLanes, top, 1));
    top = fmaxf(top, __shfl_xor_sync(kAllLanes, top, 2));
    const float before = state.base[i];
    state.base[i] = fmaxf(before, top - kHeadroom);
    // Nothing seen yet: exp(-inf - -inf) would be NaN.
    const float base = state.base[i] == minus_infinity() ? 0.0F : state.base[i];
    keep[i] = exponential(before - base);
    float sum = 0;
    QUEST_UNROLL
    for (int n = 0; n < Fragments; ++n) {
      QUEST_UNROLL
      for (int j = 0; j < 2; ++j) {
        float& x = s[n][2 * i + j];
        x = exponential(x - base);
        sum += x;
      }
    }
    state.sum[i] = state.sum[i] * keep[i] + sum;
  }
}

/// Replaces infinities and NaN by zero; whether there were any.
template <class Element>
__device__ inline bool drop_non_finite(std::uint32_t& pair) {
  constexpr std::uint32_t kLow = Element::kInf;
  constexpr std::uint32_t kHigh = kLow << 16;
  const bool low = (pair & kLow) == kLow;
  const bool high = (pair & kHigh) == kHigh;
  if (low) pair &= 0xFFFF0000U;
  if (high) pair &= 0x0000FFFFU;
  return low || high;
}

/// Adds what `drop_non_finite` took away, for the rows that see it.
template <class Element, class Shared>
__device__ inline void add_non_finite(int stage, int token,
                                      const float (&w)[Shared::kWarpTokens / 8][4],
                                      const Shared& shared, RowState<Shared::kHeadDim>& state) {
  const int lane = thread_of_block() % kWarp;
  QUEST_UNROLL_BY(1)
  for (int t = 0; t < Shared::kWarpTokens; ++t) {
    float weights[2] = {0, 0};
    QUEST_UNROLL
    for (int i = 0; i < Shared::kWarpTokens / 8 * 4; ++i) {
      // Registers have no addresses: all are looked at.
      if (i / 4 == t / 8 && i % 2 == t % 2) weights[i / 2 % 2] = w[i / 4][i % 4];
    }
    const int from = lane / 4 * 4 + t % 8 / 2;
    QUEST_UNROLL
    for (int i = 0; i < 2; ++i) weights[i] = __shfl_sync(kAllLanes, weights[i], from);
    QUEST_UNROLL
    for (int n = 0; n < Shared::kPieces; ++n) {
      const uint4& piece = shared.tiles.v[stage][token + t][n ^ ((token + t) % 8)];
      const std::uint32_t pair = reinterpret_cast<const std::uint32_t*>(&piece)[lane % 4];
      QUEST_UNROLL
      for (int j = 0; j < 2; ++j) {
        const auto bits = static_cast<std::uint16_t>(pair >> (16 * j) & 0xFFFFU);
        if ((bits & Element::kInf) != Element::kInf) continue;
        QUEST_UNROLL
        for (int i = 0; i < 2; ++i) {
          if (weights[i] != 0) state.o[n][2 * i + j] += weights[i] * Element::widen(bits);
        }
      }
    }
  }
}

/// o = keep · o + weights · values of the warp's tokens of a tile, those from `token` on. `masked`:
/// some row does not see some of them, whose values may then be anything.
template <class Element, class Shared>
__device__ inline void add_weighted_values(int stage, int token, bool masked,
                                           const float (&keep)[2],
                                           const float (&w)[Shared::kWarpTokens / 8][4],
                                           const Shared& shared,
                                           RowState<Shared::kHeadDim>& state) {
  constexpr int kSteps = Shared::kWarpTokens / 16;
  const int lane = thread_of_block() % kWarp;
  // C fragments of 16 tokens are an A fragment.
  std::uint32_t weights[2][kSteps][4];
  QUEST_UNROLL
  for (int i = 0; i < kSteps * 4; ++i) {
    std::uint32_t parts[2];
    split<Element>(w[i / 2][i % 2 * 2], w[i / 2][i % 2 * 2 + 1], parts);
    weights[0][i / 4][i % 4] = parts[0];
    weights[1][i / 4][i % 4] = parts[1];
  }
  bool odd = false;
  QUEST_UNROLL
  for (int n = 0; n < Shared::kPieces; n += 2) {
    // Added to o apart: a long run of additions on tensor cores, which truncate, would drift.
    float part[2][4] = {};
    QUEST_UNROLL
    for (int step = 0; step < kSteps; ++step) {
      // Tokens [0, 8) and [8, 16) of eight channels, then of the next eight.
      const int t = token + 16 * step + lane % 16;
      std::uint32_t v[4];
      load_transposed_matrices(v, &shared.tiles.v[stage][t][(n + lane / 16) ^ (t % 8)]);
      if (masked) {
        QUEST_UNROLL
        for (std::uint32_t& pair : v) odd = drop_non_finite<Element>(pair) || odd;
      }
      QUEST_UNROLL
      for (int p = 0; p < 2; ++p) {
        multiply_add<Element::kBf16>(part[0], weights[p][step], v[0], v[1]);
        multiply_add<Element::kBf16>(part[1], weights[p][step], v[2], v[3]);
      }
    }
    QUEST_UNROLL
    for (int i = 0; i < 4; ++i) {
      state.o[n][i] = state.o[n][i] * keep[i / 2] + part[0][i];
      state.o[n + 1][i] = state.o[n + 1][i] * keep[i / 2] + part[1][i];
    }
  }
  if (!masked || __ballot_sync(kAllLanes, odd ? 1 : 0) == 0) return;
  add_non_finite<Element>(stage, token, w, shared, state);
}

/// Attention of the block's rows over a run. Before: `load_queries`, and shared.visible of every
/// row. After: see `join_token_warps`; o is not divided by the sum. All threads of the block take
/// part.
template <class Element, class Shared>
__device__ inline void attend_rows(const LayerArgs& args, const PageRun& run, Shared& shared,
                                   RowState<Shared::kHeadDim>& state) {
  const int warp = thread_of_block() / kWarp;
  const int row_warp = warp / Shared::kTokenWarps;
  const int token_warp = warp % Shared::kTokenWarps;
  const int token = token_warp * Shared::kWarpTokens;
  QUEST_UNROLL
  for (int n = 0; n < Shared::kPieces; ++n) {
    QUEST_UNROLL
    for (int i = 0; i < 4; ++i) state.o[n][i] = 0;
  }
  QUEST_UNROLL
  for (int i = 0; i < 2; ++i) {
    state.base[i] = minus_infinity();
    state.sum[i] = 0;
  }
  __syncthreads();
  const WarpRows rows = find_rows(row_warp, shared);
  visit_tiles<Shared::kThreads>(args, run, shared.tiles, [&](int stage, std::int32_t first, int) {
    if (first + token >= rows.most) return;
    float s[Shared::kWarpTokens / 8][4];
    key_products<Element>(row_warp, stage, token, shared, s);
    float keep[2];
    weigh(rows, first + token, s, state, keep);
    const bool masked = first + token + Shared::kWarpTokens > rows.least;
    add_weighted_values<Element>(stage, token, masked, keep, s, shared, state);
  });
  join_token_warps(row_warp, token_warp, shared, state);
}

}  // namespace quest::cuda
