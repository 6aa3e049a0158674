// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "attention/cuda/kernels/elements-inl.h"
#include "attention/cuda/kernels/page_run-inl.h"
#include "attention/cuda/kernels/softmax-inl.h"

// Query rows on tensor cores, 16 a warp: how they lie in shared memory and in registers, and how
// they get in and out. After a platform header.

namespace quest::cuda {

/// Query rows of one warp: those of an mma.
inline constexpr int kMmaRows = 16;

/// Block of RowWarps x TokenWarps warps: each takes 16 of the rows, and one of TokenWarps shares of
/// the tokens of every tile.
template <int D, int RowWarps, int TokenWarps>
struct MmaShared {
  static constexpr int kHeadDim = D;
  static constexpr int kTokenWarps = TokenWarps;
  static constexpr int kThreads = RowWarps * TokenWarps * kWarp;
  static constexpr int kRows = RowWarps * kMmaRows;
  static constexpr int kPieces = D / 8;  ///< of 16 bytes in one row or token
  /// Of a tile: at least 8 KiB of keys, and 16 for every warp.
  static constexpr int kTokens = 4096 / D > 16 * TokenWarps ? 4096 / D : 16 * TokenWarps;
  static constexpr int kWarpTokens = kTokens / TokenWarps;

  KvTiles<D, kTokens> tiles;
  uint4 q[2][kRows][kPieces];   ///< both parts; piece p of row r lies at p ^ (r % 8)
  float factor[kRows];          ///< from products to logits
  std::int32_t visible[kRows];  ///< tokens of the run that the row sees; 0: none, or no such row
  float base[TokenWarps][kRows];
  float sum[TokenWarps][kRows];
};

/// What a warp has found of its 16 rows. A lane holds two of them, lane / 4 and lane / 4 + 8, and
/// of every eight channels the two from 2 · (lane % 4) on: a C fragment of mma.m16n8k16.
template <int D>
struct RowState {
  float o[D / 8][4];  ///< Σ weight · value; [channels of row 0, channels of row 1]
  float base[2];      ///< weights are exp(logit - base); -inf: nothing seen
  float sum[2];       ///< Σ weight, of this lane's tokens until the end
};

/// A power of two that brings numbers of this magnitude to 2^14, where both parts of an f16 split
/// are normal; 1 where there is none.
__device__ inline float split_scale(float magnitude) {
  const std::uint32_t exponent = __float_as_uint(magnitude) >> 23;
  if (exponent == 255) return 1;
  return __uint_as_float((268 - (exponent < 32 ? 32 : exponent)) << 23);
}

/// Puts the queries into shared memory, split. `row_of(r)`: the D floats of row r, or null: zeros.
/// All threads of the block take part.
template <class Element, class Shared, class RowOf>
__device__ inline void load_queries(float scale, const RowOf& row_of, Shared& shared) {
  constexpr int kPieces = Shared::kPieces;
  static_assert(Shared::kRows * kPieces % Shared::kThreads == 0);
  for (int i = thread_of_block(); i < Shared::kRows * kPieces; i += Shared::kThreads) {
    const int r = i / kPieces;
    const int piece = i % kPieces;
    const float* const q = row_of(r);
    float x[8];
    float most = 0;
    QUEST_UNROLL
    for (int j = 0; j < 8; ++j) {
      x[j] = q != nullptr ? q[piece * 8 + j] : 0.0F;
      most = fmaxf(most, fabsf(x[j]));
    }
    QUEST_UNROLL
    for (int mask = kPieces / 2; mask > 0; mask /= 2) {
      most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, mask));
    }
    const float up = split_scale(most);
    std::uint32_t parts[4][2];
    QUEST_UNROLL
    for (int j = 0; j < 4; ++j) split<Element>(x[2 * j] * up, x[2 * j + 1] * up, parts[j]);
    QUEST_UNROLL
    for (int part = 0; part < 2; ++part) {
      shared.q[part][r][piece ^ (r % 8)] =
          uint4{parts[0][part], parts[1][part], parts[2][part], parts[3][part]};
    }
    if (piece == 0) shared.factor[r] = scale / up;
  }
}

/// Joins what the warps that share rows have found. After: every such warp has the base and the sum
/// of all, and o of every kTokenWarps-th eight channels, beginning with its own number. All threads
/// of the block take part.
template <class Shared>
__device__ inline void join_token_warps(int row_warp, int token_warp, Shared& shared,
                                        RowState<Shared::kHeadDim>& state) {
  constexpr int kWarps = Shared::kTokenWarps;
  const int lane = thread_of_block() % kWarp;
  QUEST_UNROLL
  for (int i = 0; i < 2; ++i) {
    state.sum[i] += __shfl_xor_sync(kAllLanes, state.sum[i], 1);
    state.sum[i] += __shfl_xor_sync(kAllLanes, state.sum[i], 2);
  }
  if constexpr (kWarps > 1) {
    static_assert(Shared::kRows == kMmaRows &&
                  sizeof(float) * kWarps * kMmaRows * Shared::kHeadDim <= sizeof(shared.tiles.k));
    // No key is needed any more. [token warp, eight channels, 4, lane]
    auto* const parts = reinterpret_cast<float*>(&shared.tiles.k[0][0][0]);
    const auto part_of = [&](int warp, int n, int i) -> float& {
      return parts[((warp * Shared::kPieces + n) * 4 + i) * kWarp + lane];
    };
    QUEST_UNROLL
    for (int i = 0; i < 2; ++i) {
      const int r = row_warp * kMmaRows + lane / 4 + 8 * i;
      if (lane % 4 != 0) continue;
      shared.base[token_warp][r] = state.base[i];
      shared.sum[token_warp][r] = state.sum[i];
    }
    __syncthreads();
    float factor[2];
    QUEST_UNROLL
    for (int i = 0; i < 2; ++i) {
      const int r = row_warp * kMmaRows + lane / 4 + 8 * i;
      float base = minus_infinity();
      for (int warp = 0; warp < kWarps; ++warp) base = fmaxf(base, shared.base[warp][r]);
      const float finite = base == minus_infinity() ? 0.0F : base;
      float sum = 0;
      for (int warp = 0; warp < kWarps; ++warp) {
        sum += exponential(shared.base[warp][r] - finite) * shared.sum[warp][r];
      }
      factor[i] = exponential(state.base[i] - finite);
      state.base[i] = base;
      state.sum[i] = sum;
    }
    QUEST_UNROLL
    for (int n = 0; n < Shared::kPieces; ++n) {
      QUEST_UNROLL
      for (int i = 0; i < 4; ++i) {
        state.o[n][i] *= factor[i / 2];
        if (n % kWarps != token_warp) part_of(token_warp, n, i) = state.o[n][i];
      }
    }
    __syncthreads();
    QUEST_UNROLL
    for (int n = 0; n < Shared::kPieces; ++n) {
      if (n % kWarps != token_warp) continue;
      for (int warp = 0; warp < kWarps; ++warp) {
        if (warp == token_warp) continue;
        QUEST_UNROLL
        for (int i = 0; i < 4; ++i) state.o[n][i] += part_of(warp, n, i);
      }
    }
  }
}

/// Where a lane writes one of its rows; null: nowhere.
struct RowOutput {
  float* o = nullptr;
  float factor = 1;
};

/// Writes the part of o that is the warp's after `attend_rows`.
template <class Shared>
__device__ inline void store_rows(const RowState<Shared::kHeadDim>& state,
                                  const RowOutput (&outputs)[2]) {
  const int token_warp = thread_of_block() / kWarp % Shared::kTokenWarps;
  const int channel = 2 * (thread_of_block() % 4);
  QUEST_UNROLL
  for (int n = 0; n < Shared::kPieces; ++n) {
    if (n % Shared::kTokenWarps != token_warp) continue;
    QUEST_UNROLL
    for (int i = 0; i < 2; ++i) {
      if (outputs[i].o == nullptr) continue;
      float* const to = outputs[i].o + 8 * n + channel;
      to[0] = state.o[n][2 * i] * outputs[i].factor;
      to[1] = state.o[n][2 * i + 1] * outputs[i].factor;
    }
  }
}

}  // namespace quest::cuda
