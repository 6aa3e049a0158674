// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "attention/cuda/kernels/rows-inl.h"
#include "attention/cuda/kernels/warp-inl.h"

// Keys and values of a run of pages on their way through shared memory, tile after tile. After a
// platform header.

namespace quest::cuda {

/// Pages whose places are held at once.
inline constexpr std::int32_t kRunPages = 64;

/// Pages of one head that a block reads.
struct PageRun {
  const std::int32_t* list = nullptr;   ///< logical pages; null for first, first + 1, …
  std::int32_t first = 0;               ///< where `list` is null
  const std::int32_t* table = nullptr;  ///< physical page of each logical page
  std::int32_t head = 0;
  std::int32_t tokens = 0;  ///< all pages are full but for the last
};

/// Two tiles, one in use and one under way. Piece p of token t, 16 bytes, lies at p ^ (t % 8):
/// the same piece of eight tokens lies in different banks.
template <int D, int Tokens>
struct KvTiles {
  static constexpr int kPieces = D / 8;

  uint4 k[2][Tokens][kPieces];
  uint4 v[2][Tokens][kPieces];
  std::int32_t pages[kRunPages];
};

/// Starts to bring tokens [first, end) of the pages that are held into a stage. What lies past the
/// end may be anything.
template <int Threads, int D, int Tokens>
__device__ inline void fetch_tile(const LayerArgs& args, std::int32_t head, std::int32_t first,
                                  std::int32_t end, int stage, KvTiles<D, Tokens>& tiles) {
  constexpr int kPieces = KvTiles<D, Tokens>::kPieces;
  for (int i = thread_of_block(); i < Tokens * kPieces; i += Threads) {
    const int t = i / kPieces;
    const int piece = i % kPieces;
    const std::int32_t token = first + t;
    if (token >= end) break;
    const std::int32_t slot = token & ((1 << args.shape.page_shift) - 1);
    const std::int64_t offset =
        page_offset(args.shape, tiles.pages[token >> args.shape.page_shift], head) + slot * D +
        piece * 8;
    copy_16_bytes(&tiles.k[stage][t][piece ^ (t % 8)], args.pool.k + offset);
    copy_16_bytes(&tiles.v[stage][t][piece ^ (t % 8)], args.pool.v + offset);
  }
  commit_copies();
}

/// Calls `visit(stage, first, tokens)` for every tile of the run, in order: its tokens are
/// [first, first + tokens) of the run and lie in `stage`. All threads of the block take part.
template <int Threads, int D, int Tokens, class Visit>
__device__ inline void visit_tiles(const LayerArgs& args, const PageRun& run,
                                   KvTiles<D, Tokens>& tiles, const Visit& visit) {
  static_assert(Threads >= kRunPages);
  const int shift = args.shape.page_shift;
  for (std::int32_t begin = 0; begin < run.tokens; begin += kRunPages << shift) {
    const std::int32_t left = run.tokens - begin;
    const std::int32_t held = left < kRunPages << shift ? left : kRunPages << shift;
    if (thread_of_block() < kRunPages && thread_of_block() << shift < held) {
      const std::int32_t i = (begin >> shift) + thread_of_block();
      tiles.pages[thread_of_block()] = run.table[run.list != nullptr ? run.list[i] : run.first + i];
    }
    __syncthreads();
    fetch_tile<Threads>(args, run.head, 0, held, 0, tiles);
    for (std::int32_t first = 0; first < held; first += Tokens) {
      const int stage = first / Tokens % 2;
      const std::int32_t next = first + Tokens;
      if (next < held) {
        fetch_tile<Threads>(args, run.head, next, held, 1 - stage, tiles);
        wait_for_copies<1>();
      } else {
        wait_for_copies<0>();
      }
      __syncthreads();
      visit(stage, begin + first, held - first < Tokens ? held - first : Tokens);
      __syncthreads();  // the stage is filled next
    }
  }
}

}  // namespace quest::cuda
