// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
// Tensor core collectives of the emulator against the layouts that the PTX ISA defines, so that a
// wrong layout here cannot hide behind the same mistake in a kernel.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "cuda/emulator/platform.h"
#include "quest/error.h"

namespace quest::emulator {
namespace {

// PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type", for .f16 and .bf16:
//   groupID = laneid >> 2, threadID_in_group = laneid % 4
//   A: ai, i < 8: row = groupID           for 0 <= i < 2 or 4 <= i < 6, else groupID + 8
//                 col = threadID_in_group * 2 + (i & 1) for i < 4, else that + 8
//   B: bi, i < 4: row = threadID_in_group * 2 + (i & 1) for i < 2, else that + 8
//                 col = groupID
//   C, D: ci, i < 4: row = groupID for i < 2, else groupID + 8
//                    col = threadID_in_group * 2 + (i & 1)
// Elements 2j and 2j + 1 are the low and the high half of register j.
struct Cell {
  unsigned row;
  unsigned col;
};

Cell a_cell(unsigned lane, unsigned i) {
  const bool upper = i < 2 || (4 <= i && i < 6);
  return {(lane >> 2) + (upper ? 0 : 8), lane % 4 * 2 + (i & 1) + (i < 4 ? 0 : 8)};
}
Cell b_cell(unsigned lane, unsigned i) {
  return {lane % 4 * 2 + (i & 1) + (i < 2 ? 0 : 8), lane >> 2};
}
Cell c_cell(unsigned lane, unsigned i) {
  return {(lane >> 2) + (i < 2 ? 0 : 8), lane % 4 * 2 + (i & 1)};
}

template <bool bf16>
std::uint32_t bits_of(float x) {
  if (bf16) return std::bit_cast<std::uint32_t>(x) >> 16;  // exact for the numbers of these tests
  return ggml_fp32_to_fp16(x);
}

/// Runs one mma over matrices in row-major order and gives D.
template <bool bf16>
std::vector<float> multiply(const std::vector<float>& a, const std::vector<float>& b,
                            const std::vector<float>& c) {
  std::vector<float> d(16 * 8, -1.0F);
  run({"mma", {1, 1, 1}, {32, 1, 1}, 0}, [&] {
    const unsigned lane = threadIdx.x;
    std::uint32_t a_words[4] = {};
    std::uint32_t b_words[2] = {};
    float sums[4];
    for (unsigned i = 0; i < 8; ++i) {
      const Cell cell = a_cell(lane, i);
      a_words[i / 2] |= bits_of<bf16>(a[cell.row * 16 + cell.col]) << (i % 2 * 16);
    }
    for (unsigned i = 0; i < 4; ++i) {
      const Cell cell = b_cell(lane, i);
      b_words[i / 2] |= bits_of<bf16>(b[cell.row * 8 + cell.col]) << (i % 2 * 16);
    }
    for (unsigned i = 0; i < 4; ++i) {
      sums[i] = c[c_cell(lane, i).row * 8 + c_cell(lane, i).col];
    }
    cuda::multiply_add<bf16>(sums, a_words, b_words[0], b_words[1]);
    for (unsigned i = 0; i < 4; ++i) {
      d[c_cell(lane, i).row * 8 + c_cell(lane, i).col] = sums[i];
    }
  });
  return d;
}

/// Integers, so that every order of the sum gives the same.
std::vector<float> integers(std::size_t count, std::mt19937& random) {
  std::vector<float> values(count);
  for (float& x : values) x = static_cast<float>(static_cast<int>(random() % 33) - 16);
  return values;
}

template <bool bf16>
void expect_product() {
  std::mt19937 random(bf16 ? 7 : 8);
  const std::vector<float> a = integers(16 * 16, random);
  const std::vector<float> b = integers(16 * 8, random);
  const std::vector<float> c = integers(16 * 8, random);
  std::vector<float> want = c;
  for (unsigned row = 0; row < 16; ++row) {
    for (unsigned col = 0; col < 8; ++col) {
      for (unsigned k = 0; k < 16; ++k) want[row * 8 + col] += a[row * 16 + k] * b[k * 8 + col];
    }
  }
  EXPECT_EQ(multiply<bf16>(a, b, c), want);
}

TEST(EmulatorMatrices, MultiplyAdd_IsTheProductForTheLayoutsOfThePtxIsa) {
  expect_product<false>();
  expect_product<true>();
}

/// One element of A meets one of B, worked out by hand: lane 14 holds row 3, column 4 of A in the
/// low half of its first register, and lane 22 holds row 4, column 5 of B in the low half of its
/// first. Their product is row 3, column 5 of D: the second sum of lane 14.
TEST(EmulatorMatrices, MultiplyAdd_OneElementOfEach) {
  std::vector<std::uint32_t> moved;
  run({"mma", {1, 1, 1}, {32, 1, 1}, 0}, [&] {
    const unsigned lane = threadIdx.x;
    const std::uint32_t a[4] = {lane == 14 ? 0x4000U : 0, 0, 0, 0};  // 2
    float sums[4] = {};
    cuda::multiply_add<false>(sums, a, lane == 22 ? 0x4200U : 0, 0);  // 3
    for (unsigned i = 0; i < 4; ++i) {
      if (sums[i] != 0) moved.insert(moved.end(), {lane, i, static_cast<std::uint32_t>(sums[i])});
    }
  });
  EXPECT_THAT(moved, testing::ElementsAre(14, 1, 6));
}

/// 2^24 and odd integers: every term loses what lies below the last place of the greatest, and the
/// sum is cut, not rounded, as hardware may do at worst.
TEST(EmulatorMatrices, MultiplyAdd_CutsWhatTensorCoresMayCut) {
  std::vector<float> a(16 * 16, 0.0F);
  std::vector<float> b(16 * 8, 0.0F);
  a[0] = 3;
  b[0] = 0.5F;
  std::vector<float> c(16 * 8, 0.0F);
  c[0] = 0x1p24F;
  EXPECT_EQ(multiply<false>(a, b, c)[0], 0x1p24F);  // 1.5 lies below the last place, 2
  c[0] = -0x1p23F;
  EXPECT_EQ(multiply<false>(a, b, c)[0], -0x1p23F + 1);  // 1.5 is cut to 1
}

/// NaN stays in its row or column.
TEST(EmulatorMatrices, MultiplyAdd_NanOfBReachesItsColumnAlone) {
  std::vector<float> a(16 * 16, 0.0F);
  std::vector<float> b(16 * 8, 1.0F);
  b[9 * 8 + 6] = std::nanf("");
  const std::vector<float> d = multiply<false>(a, b, std::vector<float>(16 * 8, 5.0F));
  for (std::size_t i = 0; i < d.size(); ++i) {
    EXPECT_EQ(std::isnan(d[i]), i % 8 == 6) << i;
  }
}

// PTX ISA, "ldmatrix", .m8n8.x4: the addresses of lanes 8m … 8m + 7 are the rows of matrix m.
// Lane l receives in register m, of matrix m, row l / 4, the elements 2 · (l % 4) and the next;
// with .trans the matrix is loaded in column-major order: row and column change places.
struct alignas(16) Rows {
  std::uint16_t elements[32][8];
};

template <bool transposed>
void expect_loaded() {
  std::vector<std::uint32_t> got(32 * 4, 0);
  run({"ldmatrix", {1, 1, 1}, {32, 1, 1}, 0}, [&] {
    QUEST_SHARED(Rows, shared);
    const unsigned lane = threadIdx.x;
    // Rows lie in reverse, so that it is the address that counts.
    const unsigned place = 31 - lane;
    for (unsigned e = 0; e < 8; ++e) {
      shared.elements[place][e] = static_cast<std::uint16_t>(lane << 8 | e);
    }
    __syncthreads();
    std::uint32_t words[4];
    if (transposed) {
      cuda::load_transposed_matrices(words, shared.elements[place]);
    } else {
      cuda::load_matrices(words, shared.elements[place]);
    }
    // What comes after in one lane is not seen by the load of another.
    for (unsigned e = 0; e < 8; ++e) shared.elements[place][e] = 0xFFFF;
    for (unsigned m = 0; m < 4; ++m) got[lane * 4 + m] = words[m];
  });
  for (unsigned lane = 0; lane < 32; ++lane) {
    for (unsigned m = 0; m < 4; ++m) {
      std::uint32_t want = 0;
      for (unsigned half = 0; half < 2; ++half) {
        const unsigned major = lane / 4;
        const unsigned minor = 2 * (lane % 4) + half;
        const unsigned row = transposed ? minor : major;
        const unsigned column = transposed ? major : minor;
        want |= ((8 * m + row) << 8 | column) << (16 * half);
      }
      EXPECT_EQ(got[lane * 4 + m], want) << "lane " << lane << " matrix " << m;
    }
  }
}

TEST(EmulatorMatrices, LoadMatrices_FollowThePtxIsa) {
  expect_loaded<false>();
  expect_loaded<true>();
}

/// Loaded plainly, rows of a matrix in memory are the rows of A, and rows of B's transpose; loaded
/// transposed, they are the rows of B: how attention uses them.
TEST(EmulatorMatrices, LoadedMatrices_AreTheFragmentsOfMultiplyAdd) {
  std::mt19937 random(11);
  const std::vector<float> a = integers(16 * 16, random);
  const std::vector<float> b = integers(16 * 16, random);
  // Rows of 24 elements, so that those of one matrix lie in different banks.
  constexpr unsigned kRow = 24;
  struct alignas(16) Bits {
    std::uint16_t elements[16 * kRow];
  };
  Bits a_bits{};
  Bits b_bits{};
  for (unsigned i = 0; i < 16 * 16; ++i) {
    a_bits.elements[i / 16 * kRow + i % 16] = ggml_fp32_to_fp16(a[i]);
    b_bits.elements[i / 16 * kRow + i % 16] = ggml_fp32_to_fp16(b[i]);
  }
  for (const bool transposed : {false, true}) {
    std::vector<float> got(16 * 16, -1.0F);
    run({"both", {1, 1, 1}, {32, 1, 1}, 0}, [&] {
      const unsigned lane = threadIdx.x;
      std::uint32_t a_words[4];
      std::uint32_t b_words[4];
      const unsigned by_rows = lane % 16 * kRow + lane / 16 * 8;
      const unsigned by_columns = (lane / 16 * 8 + lane % 8) * kRow + lane / 8 % 2 * 8;
      cuda::load_matrices(a_words, a_bits.elements + by_rows);
      if (transposed) {
        cuda::load_transposed_matrices(b_words, b_bits.elements + by_rows);
      } else {
        cuda::load_matrices(b_words, b_bits.elements + by_columns);
      }
      for (unsigned n = 0; n < 2; ++n) {
        float sums[4] = {};
        cuda::multiply_add<false>(sums, a_words, b_words[2 * n], b_words[2 * n + 1]);
        for (unsigned i = 0; i < 4; ++i) {
          const Cell cell = c_cell(lane, i);
          got[cell.row * 16 + 8 * n + cell.col] = sums[i];
        }
      }
    });
    for (unsigned row = 0; row < 16; ++row) {
      for (unsigned col = 0; col < 16; ++col) {
        float want = 0;
        for (unsigned k = 0; k < 16; ++k) {
          want += a[row * 16 + k] * (transposed ? b[k * 16 + col] : b[col * 16 + k]);
        }
        EXPECT_EQ(got[row * 16 + col], want) << transposed << " at " << row << ", " << col;
      }
    }
  }
}

TEST(EmulatorMatrices, LoadMatrices_RowsInOneBankAreAnError) {
  const auto load = [](unsigned stride) {
    run({"banks", {1, 1, 1}, {32, 1, 1}, 4096}, [&] {
      QUEST_DYNAMIC_SHARED(unsigned char, shared);
      std::uint32_t words[4];
      cuda::load_matrices(words, &shared + threadIdx.x * stride);
    });
  };
  EXPECT_NO_THROW(load(16));
  EXPECT_NO_THROW(load(48));
  EXPECT_THROW(load(32), Error);   // rows 0 and 4 of a matrix
  EXPECT_THROW(load(128), Error);  // all of them
  EXPECT_THROW(load(24), Error);   // not aligned
}

TEST(EmulatorMatrices, Collectives_NeedTheWholeWarp) {
  const auto half_a_warp = [] {
    if (threadIdx.x >= 16) return;
    float sums[4] = {};
    const std::uint32_t a[4] = {};
    cuda::multiply_add<false>(sums, a, 0, 0);
  };
  EXPECT_THROW(run({"half", {1, 1, 1}, {32, 1, 1}, 0}, half_a_warp), Error);
}

/// Halves in order, to nearest, ties to even.
TEST(EmulatorMatrices, Pack_RoundsToNearestEven) {
  EXPECT_EQ(cuda::pack_f16(1.0F, -2.0F), 0xC0003C00U);
  EXPECT_EQ(cuda::pack_f16(1.0F + 0x1p-11F, 1.0F + 0x3p-11F), 0x3C023C00U);
  EXPECT_EQ(cuda::pack_f16(65520.0F, 0x1p-25F), 0x00007C00U);
  EXPECT_EQ(cuda::pack_bf16(1.0F, -2.0F), 0xC0003F80U);
  EXPECT_EQ(cuda::pack_bf16(1.0F + 0x1p-8F, 1.0F + 0x3p-8F), 0x3F823F80U);
}

}  // namespace
}  // namespace quest::emulator
