// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
// The prefill kernels against float64 on every instruction set, over pages whose unused slots are
// poisoned and scratch that is fenced.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <thread>

#include "attention/cpu/float_buffer.h"
#include "attention/every_target.h"
#include "core/elements.h"

namespace quest::test {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr std::int64_t kFence = 64;
constexpr float kFenceValue = -12345.0F;

struct Shape {
  KvType type = KvType::kF16;
  std::int32_t page_size = 16;
  std::int32_t head_dim = 64;
  std::int32_t heads = 1;
  std::int32_t rows = 1;
  std::int64_t first_position = 0;

  std::int64_t length() const { return first_position + rows; }
  std::int64_t pages() const { return (length() + page_size - 1) / page_size; }
  std::string describe() const {
    return std::string(name_of(type)) + " page_size " + std::to_string(page_size) + " head_dim " +
           std::to_string(head_dim) + " heads " + std::to_string(heads) + " rows " +
           std::to_string(rows) + " first " + std::to_string(first_position);
  }
};

/// One KV head: numbers by token, their encoded pages, and the kernel's arguments.
class PrefillCase {
 public:
  explicit PrefillCase(const Shape& shape, std::uint32_t seed = 1)
      : shape_(shape),
        q(static_cast<std::size_t>(shape.rows) * shape.heads * shape.head_dim),
        k(static_cast<std::size_t>(shape.length() * shape.head_dim)),
        v(k.size()) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    for (auto* values : {&q, &k, &v}) {
      for (float& x : *values) x = normal(random);
    }
  }

  /// Encodes k and v; slots after the last token hold `poison`. Afterwards k and v are what the
  /// pages hold.
  void store(float poison) {
    const std::int64_t d = shape_.head_dim;
    const std::int64_t size = shape_.page_size;
    const std::int64_t page_elements = size * d;
    const auto page_bytes = page_elements * static_cast<std::int64_t>(size_of(shape_.type));
    pages_.assign(static_cast<std::size_t>(2 * page_bytes * shape_.pages()), std::byte{0});
    table_.resize(static_cast<std::size_t>(shape_.pages()));
    std::iota(table_.rbegin(), table_.rend(), 0);  // backwards
    std::vector<float> page(static_cast<std::size_t>(page_elements));
    for (std::int64_t p = 0; p < shape_.pages(); ++p) {
      std::byte* const place = pages_.data() + table_[static_cast<std::size_t>(p)] * 2 * page_bytes;
      for (const bool keys : {true, false}) {
        std::vector<float>& from = keys ? k : v;
        const auto slot = [&](std::int64_t t, std::int64_t j) {
          return static_cast<std::size_t>(keys ? j * size + t : t * d + j);
        };
        const auto each = [&](const auto& body) {
          for (std::int64_t t = 0; t < size; ++t) {
            for (std::int64_t j = 0; j < d; ++j) body(t, j, (p * size + t) * d + j);
          }
        };
        const auto end = static_cast<std::int64_t>(from.size());
        each([&](std::int64_t t, std::int64_t j, std::int64_t i) {
          page[slot(t, j)] = i < end ? from[static_cast<std::size_t>(i)] : poison;
        });
        std::byte* const to = place + (keys ? 0 : page_bytes);
        encode(shape_.type, page.data(), to, page_elements);
        decode(shape_.type, to, page.data(), page_elements);
        each([&](std::int64_t t, std::int64_t j, std::int64_t i) {
          if (i < end) from[static_cast<std::size_t>(i)] = page[slot(t, j)];
        });
      }
    }
    args_.pages.k = pages_.data();
    args_.pages.v = pages_.data() + page_bytes;
    args_.pages.stride = 2 * page_bytes;
    args_.pages.table = table_.data();
    args_.pages.page_size = shape_.page_size;
    args_.pages.head_dim = shape_.head_dim;
  }

  /// Runs the kernel; scratch starts as NaN and, like the output, has fences around it.
  void run() {
    const std::int32_t virtual_rows = shape_.rows * shape_.heads;
    const std::int64_t floats = cpu::prefill_scratch_floats(virtual_rows, shape_.head_dim);
    cpu::FloatBuffer scratch;
    scratch.grow(floats + 2 * kFence);
    std::fill_n(scratch.data(), floats + 2 * kFence, kFenceValue);
    std::fill_n(scratch.data() + kFence, floats, kNan);
    out.assign(q.size() + 2 * kFence, kFenceValue);
    args_.q = q.data();
    args_.out = out.data() + kFence;
    args_.q_stride = args_.out_stride = std::int64_t{shape_.heads} * shape_.head_dim;
    args_.heads = shape_.heads;
    args_.rows = shape_.rows;
    args_.first_position = shape_.first_position;
    args_.scale = scale;
    args_.scratch = scratch.data() + kFence;
    CacheShape shape;
    shape.type = shape_.type;
    shape.head_dim = shape_.head_dim;
    shape.page_size = shape_.page_size;
    cpu::kernels_for(shape).prefill(args_);
    const auto intact = [](const float* fence) {
      return std::all_of(fence, fence + kFence, [](float x) { return x == kFenceValue; });
    };
    EXPECT_TRUE(intact(scratch.data()) && intact(scratch.data() + kFence + floats));
    EXPECT_TRUE(intact(out.data()) && intact(out.data() + out.size() - kFence));
    out.erase(out.begin(), out.begin() + kFence);
    out.resize(q.size());
  }

  /// Output of virtual row `row` in float64.
  std::vector<double> exact(std::int32_t row) const {
    const std::int64_t d = shape_.head_dim;
    const std::int64_t seen = shape_.first_position + row / shape_.heads + 1;
    std::vector<double> logits(static_cast<std::size_t>(seen));
    for (std::int64_t t = 0; t < seen; ++t) {
      double dot = 0;
      for (std::int64_t j = 0; j < d; ++j) {
        dot += double{q[static_cast<std::size_t>(row * d + j)]} *
               k[static_cast<std::size_t>(t * d + j)];
      }
      logits[static_cast<std::size_t>(t)] = dot * scale;
    }
    const double top = *std::max_element(logits.begin(), logits.end());
    std::vector<double> o(static_cast<std::size_t>(d), 0.0);
    double sum = 0;
    for (std::int64_t t = 0; t < seen; ++t) {
      const double weight = std::exp(logits[static_cast<std::size_t>(t)] - top);
      sum += weight;
      for (std::int64_t j = 0; j < d; ++j) {
        o[static_cast<std::size_t>(j)] += weight * v[static_cast<std::size_t>(t * d + j)];
      }
    }
    for (double& x : o) x /= sum;
    return o;
  }

  /// Greatest error of a row, relative to its greatest value.
  double error(std::int32_t row) const {
    const std::vector<double> want = exact(row);
    double error = 0;
    double size = 1e-30;
    for (std::int32_t j = 0; j < shape_.head_dim; ++j) {
      const double x = want[static_cast<std::size_t>(j)];
      const double got = out[static_cast<std::size_t>(row * shape_.head_dim + j)];
      if (!std::isfinite(got)) return kInf;
      error = std::max(error, std::abs(got - x));
      size = std::max(size, std::abs(x));
    }
    return error / size;
  }
  double greatest_error() const {
    double greatest = 0;
    // First, last, and some in between; the reference is slow.
    const std::int32_t rows = shape_.rows * shape_.heads;
    for (std::int32_t i = 0; i <= 8; ++i) {
      greatest =
          std::max(greatest, error(static_cast<std::int32_t>(std::int64_t{rows - 1} * i / 8)));
    }
    return greatest;
  }

 private:
  Shape shape_;
  std::vector<std::byte> pages_;
  std::vector<std::int32_t> table_;
  cpu::PrefillArgs args_;

 public:
  float scale = 0.125F;
  std::vector<float> q;    ///< [rows, heads, head_dim]
  std::vector<float> k;    ///< [length, head_dim]
  std::vector<float> v;    ///< [length, head_dim]
  std::vector<float> out;  ///< [rows, heads, head_dim]
};

class Prefill : public EveryTarget {
 protected:
  /// Products of two bf16 parts leave out lo·lo, up to 2^-16 of the product, and what is left of
  /// either factor, up to 2^-17.
  static double tolerance() { return GetParam().tiles ? 2.5e-5 : 5e-6; }
};

INSTANTIATE_TEST_SUITE_P(Kernels, Prefill, testing::ValuesIn(runnable_targets()), target_name);

constexpr KvType kTypes[] = {KvType::kF32, KvType::kF16, KvType::kBF16};

/// Every page size, head size and type, with groups, lengths and positions that fit nothing.
TEST_P(Prefill, MatchesFloat64ForEveryShape) {
  std::mt19937 random(11);
  for (const KvType type : kTypes) {
    for (const std::int32_t page_size : {8, 16, 32, 64}) {
      for (const std::int32_t head_dim : {64, 80, 96, 128, 256}) {
        Shape shape{type, page_size, head_dim};
        shape.heads = 1 + static_cast<std::int32_t>(random() % 16);
        shape.rows = 1 + static_cast<std::int32_t>(random() % 40);
        shape.first_position = static_cast<std::int64_t>(random() % 3 == 0 ? 0 : random() % 600);
        SCOPED_TRACE(shape.describe());
        PrefillCase prefill(shape, static_cast<std::uint32_t>(random()));
        prefill.scale = 1.0F / std::sqrt(static_cast<float>(head_dim));
        prefill.store(kNan);
        prefill.run();
        ASSERT_LE(prefill.greatest_error(), tolerance());
      }
    }
  }
}

/// Lengths around the ends of pages, steps, units and runs.
TEST_P(Prefill, MatchesFloat64AtEveryEnd) {
  for (const std::int64_t first :
       {0, 1, 15, 31, 32, 63, 64, 65, 127, 128, 254, 255, 256, 257, 511}) {
    for (const std::int32_t rows : {1, 2, 15, 17, 33}) {
      const Shape shape{KvType::kF16, 16, 64, 3, rows, first};
      SCOPED_TRACE(shape.describe());
      PrefillCase prefill(shape, static_cast<std::uint32_t>(first + 1));
      prefill.store(kInf);
      prefill.run();
      ASSERT_LE(prefill.greatest_error(), tolerance());
    }
  }
}

TEST_P(Prefill, LargeLogitsPickTheGreatest) {
  for (const KvType type : kTypes) {
    PrefillCase prefill({type, 16, 64, 3, 40, 300}, 5);
    for (float& x : prefill.q) x *= 1e3F;
    for (float& x : prefill.k) x *= 1e3F;  // logits around 1e6
    prefill.store(kNan);
    prefill.run();
    EXPECT_LE(prefill.greatest_error(), tolerance()) << name_of(type);
    for (float& x : prefill.k) x = -std::abs(x);
    for (float& x : prefill.q) x = std::abs(x);  // all far below 0
    prefill.store(kNan);
    prefill.run();
    EXPECT_LE(prefill.greatest_error(), tolerance()) << name_of(type);
  }
}

/// Logits that rise from run to run or fall, by little or by much.
TEST_P(Prefill, RisingAndFallingLogits) {
  for (const float slope : {0x1p-6F, -0x1p-6F, 1.0F, -1.0F}) {
    PrefillCase prefill({KvType::kF16, 16, 64, 2, 33, 600}, 9);  // the slopes are exact in f16
    for (std::size_t i = 0; i < prefill.k.size(); i += 64) {
      prefill.k[i] = slope * static_cast<float>(i / 64);
    }
    for (std::size_t i = 0; i < prefill.q.size(); i += 64) prefill.q[i] = 8;
    prefill.store(kNan);
    prefill.run();
    // A logit is a float too: its rounding counts for so much in its weight.
    const double rounding = 633 * std::abs(slope) * 0x1p-21;
    EXPECT_LE(prefill.greatest_error(), tolerance() + rounding) << slope;
  }
}

TEST_P(Prefill, EqualLogitsGiveTheMean) {
  PrefillCase prefill({KvType::kF16, 16, 80, 4, 30, 500}, 3);
  std::fill(prefill.q.begin(), prefill.q.end(), 0.0F);
  for (float& x : prefill.v) x = std::round(x * 4);  // exact sums
  prefill.store(kNan);
  prefill.run();
  EXPECT_LE(prefill.greatest_error(), 1e-6);
}

/// A token that is not finite spoils those that see it and no others.
TEST_P(Prefill, LaterTokensThatAreNotFiniteDoNotReachBack) {
  constexpr std::int32_t kBad = 20;  // row whose token is bad
  for (const float bad : {kNan, kInf, -kInf}) {
    for (const bool in_keys : {true, false}) {
      PrefillCase prefill({KvType::kF16, 16, 64, 2, 40, 50}, 8);
      std::vector<float>& values = in_keys ? prefill.k : prefill.v;
      values[static_cast<std::size_t>((50 + kBad) * 64 + 5)] = bad;
      prefill.store(kNan);
      prefill.run();
      for (std::int32_t row = 0; row < 2 * kBad; ++row) {
        ASSERT_LE(prefill.error(row), tolerance()) << "row " << row << " bad " << bad;
      }
    }
  }
}

/// Extremes of float32 that bf16 cannot split.
TEST_P(Prefill, GreatestFloatsStayFinite) {
  PrefillCase prefill({KvType::kF32, 16, 64, 1, 5, 20}, 8);
  prefill.v[0] = std::numeric_limits<float>::max();
  prefill.v[64] = std::numeric_limits<float>::denorm_min();
  prefill.store(kNan);
  prefill.run();
  EXPECT_LE(prefill.greatest_error(), tolerance());
}

/// The same result for a row whatever rows are computed beside it.
TEST_P(Prefill, RowsDoNotDependOnTheirTile) {
  const Shape whole{KvType::kF16, 16, 64, 3, 70, 130};
  PrefillCase all(whole, 2);
  all.store(kNan);
  all.run();
  for (const std::int32_t first : {0, 1, 33, 69}) {
    Shape part = whole;
    part.first_position += first;
    part.rows = std::min(7, whole.rows - first);
    PrefillCase few(part, 2);
    few.k.assign(all.k.begin(), all.k.begin() + part.length() * 64);
    few.v.assign(all.v.begin(), all.v.begin() + part.length() * 64);
    const auto begin = all.q.begin() + static_cast<std::ptrdiff_t>(first) * 3 * 64;
    few.q.assign(begin, begin + static_cast<std::ptrdiff_t>(part.rows) * 3 * 64);
    few.store(kNan);
    few.run();
    for (std::size_t i = 0; i < few.out.size(); ++i) {
      ASSERT_NEAR(few.out[i], all.out[static_cast<std::size_t>(first) * 3 * 64 + i], 2e-5);
    }
  }
}

#if QUEST_HAVE_AMX

cpu::TileConfig current_config() {
  cpu::TileConfig config;
  asm volatile("sttilecfg %0" : "=m"(config));
  return config;
}

/// On a machine without tiles these would be illegal instructions.
class TileState : public testing::Test {
 protected:
  void SetUp() override {
    if (!cpu::amx_usable()) GTEST_SKIP() << "this machine has no tile products";
  }
  static void prefill_once() {
    PrefillCase prefill({KvType::kF16, 16, 64, 3, 20, 70}, 4);
    prefill.store(kNan);
    prefill.run();
    EXPECT_LE(prefill.greatest_error(), 2.5e-5);
  }
};

/// Other code on the thread, ggml's for one, configures its tiles once and relies on it.
TEST_F(TileState, PrefillRestoresTheThreadsConfiguration) {
  std::thread([] {
    cpu::TileConfig mine;
    mine.palette = 1;
    for (int i = 0; i < 8; ++i) {
      mine.row_bytes[i] = static_cast<std::uint16_t>(8 * (i + 1));
      mine.rows[i] = static_cast<std::uint8_t>(i + 1);
    }
    asm volatile("ldtilecfg %0" : : "m"(mine));
    for (int i = 0; i < 3; ++i) {
      prefill_once();
      const cpu::TileConfig after = current_config();
      EXPECT_EQ(std::memcmp(&after, &mine, sizeof(mine)), 0);
    }
    asm volatile("tilerelease");
  }).join();
}

/// The instruction that the configuration is for still works: 8 bytes by 2 rows of tile 1.
TEST_F(TileState, TilesOfOthersWorkAfterPrefill) {
  std::thread([] {
    cpu::TileConfig mine;
    mine.palette = 1;
    mine.row_bytes[1] = 8;
    mine.rows[1] = 2;
    asm volatile("ldtilecfg %0" : : "m"(mine));
    prefill_once();
    const std::uint8_t from[16] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
    std::uint8_t to[16 + 64] = {};
    cpu::tile_load<1>(from, 8);
    cpu::tile_store<1>(to, 8);
    EXPECT_EQ(std::memcmp(to, from, 16), 0);
    EXPECT_TRUE(std::all_of(to + 16, to + sizeof(to), [](std::uint8_t x) { return x == 0; }));
    asm volatile("tilerelease");
  }).join();
}

TEST_F(TileState, ThreadsWithoutConfigurationHaveNoneAfterwards) {
  std::thread([] {
    const cpu::TileConfig none;
    const cpu::TileConfig before = current_config();
    ASSERT_EQ(std::memcmp(&before, &none, sizeof(none)), 0);
    prefill_once();
    const cpu::TileConfig after = current_config();
    EXPECT_EQ(std::memcmp(&after, &none, sizeof(none)), 0);
  }).join();
}

#endif

}  // namespace
}  // namespace quest::test
