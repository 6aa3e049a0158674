// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ggml.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "cuda/emulator/grid.h"
#include "quest/error.h"

// Tensor cores on the host: the warp collectives of src/attention/cuda/kernels/nvcc_platform.h that
// load and multiply small matrices, with the fragment layouts of the PTX ISA. Included by
// platform.h.
namespace quest::cuda {

namespace matrices {

using emulator::Gift;

inline float widen(bool bf16, std::uint32_t bits) {
  const auto element = static_cast<std::uint16_t>(bits & 0xFFFFU);
  if (!bf16) return ggml_fp16_to_fp32(element);
  return ggml_bf16_to_fp32({element});
}

/// What a lane has of A and B as numbers: element i is the low or high half of register i / 2.
struct Fragments {
  float a[8];
  float b[4];
};
static_assert(sizeof(Fragments) == sizeof(Gift));

/// The sixteen bytes of a row that every lane gave the address of.
struct MatrixRow {
  std::uint16_t elements[8];
};

inline MatrixRow row_of(const Gift& gift) {
  MatrixRow row;
  std::memcpy(&row, gift.data(), sizeof row);
  return row;
}

/// The eight rows of a matrix must lie in different banks, or the load takes several turns.
inline const Gift* exchange_rows(const void* row, const emulator::Place& where) {
  constexpr std::uint64_t kBankGroups = 8;  // of 16 bytes
  const std::uint64_t address = reinterpret_cast<std::uintptr_t>(row);
  if (address % sizeof(MatrixRow) != 0) throw Error("ldmatrix: an address is not aligned");
  Gift gift{};
  std::memcpy(gift.data(), row, sizeof(MatrixRow));
  gift[2] = address / sizeof(MatrixRow) % kBankGroups;
  const Gift* gifts = emulator::exchange(~0U, gift, where);
  const unsigned lane = emulator::lane_index();
  for (unsigned other = lane / 8 * 8; other < lane; ++other) {
    if (gifts[other][2] == gift[2]) throw Error("ldmatrix: rows of one matrix share a bank");
  }
  return gifts;
}

/// Sum as tensor cores may form it at worst: each term cut to the last place of a float32 as large
/// as the greatest of them, and the sum cut to a float32. The ISA leaves both open.
inline float truncated_sum(const double (&terms)[17]) {
  double most = 0;
  double plain = 0;
  for (const double term : terms) {
    most = std::max(most, std::abs(term));
    plain += term;
  }
  if (most == 0 || !std::isfinite(plain)) return static_cast<float>(plain);
  const double place = std::ldexp(1.0, std::ilogb(most) - 23);
  double sum = 0;
  for (const double term : terms) sum += std::trunc(term / place) * place;
  const auto nearest = static_cast<float>(sum);
  return std::abs(double{nearest}) > std::abs(sum) ? std::nextafter(nearest, 0.0F) : nearest;
}

}  // namespace matrices

/// sums[16, 8] += a[16, 16] · b[16, 8] of a warp: mma.sync.aligned.m16n8k16.row.col.f32, elements
/// f16 or bf16.
template <bool bf16>
void multiply_add(float (&sums)[4], const std::uint32_t (&a)[4], std::uint32_t b_low,
                  std::uint32_t b_high, const emulator::Place& where = emulator::Place::here()) {
  using namespace matrices;
  Fragments mine;
  for (int i = 0; i < 8; ++i) mine.a[i] = widen(bf16, a[i / 2] >> (i % 2 * 16));
  for (int i = 0; i < 4; ++i) mine.b[i] = widen(bf16, (i < 2 ? b_low : b_high) >> (i % 2 * 16));
  Gift gift;
  std::memcpy(gift.data(), &mine, sizeof mine);
  const Gift* gifts = emulator::exchange(~0U, gift, where);
  const auto fragments_of = [&](unsigned lane) {
    Fragments theirs;
    std::memcpy(&theirs, gifts[lane].data(), sizeof theirs);
    return theirs;
  };
  const unsigned lane = emulator::lane_index();
  double terms[4][17];  // C, then the products
  for (int i = 0; i < 4; ++i) terms[i][0] = sums[i];
  // Lane 4r + p has columns 2p, 2p + 1, 2p + 8 and 2p + 9 of A's rows r and r + 8; lane 4c + p has
  // the same rows of B's column c.
  for (unsigned p = 0; p < 4; ++p) {
    const Fragments row = fragments_of(lane / 4 * 4 + p);
    const Fragments left = fragments_of(lane % 4 * 8 + p);       // column 2 · (lane % 4)
    const Fragments right = fragments_of(lane % 4 * 8 + 4 + p);  // the next one
    for (int half = 0; half < 2; ++half) {
      for (int i = 0; i < 2; ++i) {
        const double upper = row.a[4 * half + i];
        const double lower = row.a[4 * half + 2 + i];
        terms[0][1 + 4 * p + 2 * half + i] = upper * left.b[2 * half + i];
        terms[1][1 + 4 * p + 2 * half + i] = upper * right.b[2 * half + i];
        terms[2][1 + 4 * p + 2 * half + i] = lower * left.b[2 * half + i];
        terms[3][1 + 4 * p + 2 * half + i] = lower * right.b[2 * half + i];
      }
    }
  }
  for (int i = 0; i < 4; ++i) sums[i] = truncated_sum(terms[i]);
}

/// Four matrices of 8 rows of 8 elements from shared memory: ldmatrix.sync.aligned.m8n8.x4. Lane l
/// gives the address of row l % 8 of matrix l / 8 and gets two neighbours of row l / 4 of each.
inline void load_matrices(std::uint32_t (&words)[4], const void* row,
                          const emulator::Place& where = emulator::Place::here()) {
  using namespace matrices;
  const Gift* gifts = exchange_rows(row, where);
  const unsigned lane = emulator::lane_index();
  for (unsigned m = 0; m < 4; ++m) {
    const MatrixRow from = row_of(gifts[8 * m + lane / 4]);
    std::memcpy(&words[m], from.elements + 2 * (lane % 4), sizeof words[m]);
  }
}

/// The same with .trans: the two neighbours come from one column, lane / 4.
inline void load_transposed_matrices(std::uint32_t (&words)[4], const void* row,
                                     const emulator::Place& where = emulator::Place::here()) {
  using namespace matrices;
  const Gift* gifts = exchange_rows(row, where);
  const unsigned lane = emulator::lane_index();
  for (unsigned m = 0; m < 4; ++m) {
    const MatrixRow first = row_of(gifts[8 * m + 2 * (lane % 4)]);
    const MatrixRow second = row_of(gifts[8 * m + 2 * (lane % 4) + 1]);
    words[m] = first.elements[lane / 4] | static_cast<std::uint32_t>(second.elements[lane / 4])
                                              << 16;
  }
}

/// Two numbers in one word, the first in the low half, each rounded to nearest.
inline std::uint32_t pack_f16(float low, float high) {
  return ggml_fp32_to_fp16(low) | static_cast<std::uint32_t>(ggml_fp32_to_fp16(high)) << 16;
}
inline std::uint32_t pack_bf16(float low, float high) {
  return ggml_fp32_to_bf16(low).bits | static_cast<std::uint32_t>(ggml_fp32_to_bf16(high).bits)
                                           << 16;
}

}  // namespace quest::cuda
