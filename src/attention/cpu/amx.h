// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

// The tile instructions are written as assembly, so a file that uses them needs no compiler flags.
// gcc 12's _tile_loadconfig declares only eight of the 64 bytes as read: what the compiler takes
// for dead stores then vanishes, and the program with it.
#if defined(__x86_64__) && defined(__linux__) && (__GNUC__ >= 11 || __clang_major__ >= 12)
#define QUEST_HAVE_AMX 1
#else
#define QUEST_HAVE_AMX 0
#endif

namespace quest::cpu {

/// Whether bf16 tile products may be used: the machine has them, the system saves their registers
/// and has given this process leave to use them (asked for at the first call), and nobody has
/// forbidden them.
bool amx_usable();
/// Forbids tile products for kernels that are chosen from now on, or allows them again: for tests
/// and measurements.
void allow_amx(bool allow);

#if QUEST_HAVE_AMX

/// A tile: 16 rows of 64 bytes.
inline constexpr std::int32_t kTileRows = 16;
inline constexpr std::int32_t kTileRowBytes = 64;

/// Memory image of the tile configuration.
struct alignas(64) TileConfig {
  std::uint8_t palette = 0;  ///< 0: no tiles
  std::uint8_t start_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t row_bytes[16] = {};
  std::uint8_t rows[16] = {};
};
static_assert(sizeof(TileConfig) == 64);

/// Sets all eight tiles to full size for as long as it lives, then restores what the thread had.
/// Other code on the same thread, ggml's for one, sets its configuration once and relies on it;
/// a thread that had none has none again. Contents of tiles are lost at both ends.
class TileScope {
 public:
  TileScope() {
    asm volatile("sttilecfg %0" : "=m"(before_));
    TileConfig config;
    config.palette = 1;
    for (int i = 0; i < 8; ++i) {
      config.row_bytes[i] = kTileRowBytes;
      config.rows[i] = kTileRows;
    }
    asm volatile("ldtilecfg %0" : : "m"(config));
  }
  ~TileScope() { asm volatile("ldtilecfg %0" : : "m"(before_)); }
  TileScope(const TileScope&) = delete;
  TileScope& operator=(const TileScope&) = delete;

 private:
  TileConfig before_;
};

template <int kTile>
inline void tile_zero() {
  asm volatile("tilezero %%tmm%c0" : : "i"(kTile));
}

/// Rows are `stride` bytes apart.
template <int kTile>
inline void tile_load(const void* from, std::int64_t stride) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(stride), "i"(kTile) : "memory");
}

template <int kTile>
inline void tile_store(void* to, std::int64_t stride) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(to), "r"(stride), "i"(kTile) : "memory");
}

/// sum[m][n] += Σ_k a[m][2k] · b[k][2n] + a[m][2k + 1] · b[k][2n + 1], bf16 factors, f32 sums.
template <int kSum, int kA, int kB>
inline void tile_dot() {
  asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSum), "i"(kA), "i"(kB));
}

#endif

}  // namespace quest::cpu
