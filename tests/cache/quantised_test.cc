// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
// q8_0 pages, q8 and q4 summaries (SPEC S7.6).
#include <ggml.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "cache/kv_access.h"
#include "cache/page_codec.h"
#include "cache/quantise.h"
#include "quest/kv_cache.h"

namespace quest {
namespace {

using namespace quest::testing;

constexpr KvType kTypes[] = {KvType::kF32, KvType::kF16, KvType::kBF16, KvType::kQ8_0};
constexpr SummaryType kSummaries[] = {SummaryType::kPlain, SummaryType::kQ8, SummaryType::kQ4};
constexpr SummaryType kRounded[] = {SummaryType::kQ8, SummaryType::kQ4};

CacheShape shape_of(KvType type, SummaryType summary, std::int32_t head_dim, std::int32_t size) {
  CacheShape shape = small_shape(16, size, type);
  shape.summary_type = summary;
  shape.head_dim = head_dim;
  return shape;
}

std::string describe(const CacheShape& shape) {
  return std::string(name_of(shape.type)) + " summary " + std::string(name_of(shape.summary_type)) +
         " d " + std::to_string(shape.head_dim) + " S " + std::to_string(shape.page_size);
}

/// A row as ggml's scalar q8_0 stores it, widened again by ggml.
std::vector<float> ggml_q8_0(const float* row, std::int32_t head_dim) {
  std::vector<float> padded(static_cast<std::size_t>((head_dim + 31) / 32 * 32), 0.0F);
  std::copy_n(row, head_dim, padded.begin());
  const auto count = static_cast<std::int64_t>(padded.size());
  std::vector<std::byte> blocks(ggml_row_size(GGML_TYPE_Q8_0, count));
  ggml_quantize_chunk(GGML_TYPE_Q8_0, padded.data(), blocks.data(), 0, 1, count, nullptr);
  ggml_get_type_traits(GGML_TYPE_Q8_0)->to_float(blocks.data(), padded.data(), count);
  padded.resize(static_cast<std::size_t>(head_dim));
  return padded;
}

TEST(QuantisedPage, HoldsTheValuesOfGgmlsQ8_0) {
  for (const std::int32_t head_dim : {64, 80, 96, 128, 256}) {
    const CacheShape shape = shape_of(KvType::kQ8_0, SummaryType::kQ8, head_dim, 16);
    KvCache cache(shape);
    poison(cache, 0xFF);
    const Rows rows(37, head_dim, 3);
    const SequenceId id = cache.create();
    write(cache, id, rows, 0, 37);
    std::int64_t wrong = 0;
    for (std::int64_t t = 0; t < 37; ++t) {
      const std::int32_t page = cache.pages(id)[static_cast<std::size_t>(t / 16)];
      const auto k = ggml_q8_0(rows.k.data() + t * head_dim, head_dim);
      const auto v = ggml_q8_0(rows.v.data() + t * head_dim, head_dim);
      for (std::int32_t j = 0; j < head_dim; ++j) {
        // ggml's vector code rounds halves to even, its scalar code away from zero: one step apart.
        const PagedKv kv = cache.layer(1);
        const auto at = static_cast<std::size_t>(j);
        wrong += key_at(kv, page, 1, t % 16, j) != k[at];
        wrong += value_at(kv, page, 1, t % 16, j) != v[at];
      }
    }
    EXPECT_LE(wrong, 2) << "head_dim " << head_dim;
  }
}

TEST(QuantisedPage, DecodesToTheNumbersOfItsParts) {
  for (const KvType type : kTypes) {
    for (const SummaryType summary : kSummaries) {
      const CacheShape shape = shape_of(type, summary, 80, 8);
      KvCache cache(shape);
      const SequenceId id = cache.create();
      write(cache, id, Rows(16, 80, 4), 0, 16);
      const std::int32_t page = cache.pages(id)[1];
      const PagedKv kv = cache.layer(0);
      std::vector<float> k(640);
      std::vector<float> v(640);
      std::vector<float> bounds(160);
      decode_keys(shape, kv.k_page(page, 1), k.data());
      decode_values(shape, kv.v_page(page, 1), v.data());
      decode_summary(shape, kv.summary(page, 1), bounds.data());
      for (std::int32_t j = 0; j < 80; ++j) {
        for (std::int32_t t = 0; t < 8; ++t) {
          ASSERT_EQ(k[static_cast<std::size_t>(j * 8 + t)], key_at(kv, page, 1, t, j));
          ASSERT_EQ(v[static_cast<std::size_t>(t * 80 + j)], value_at(kv, page, 1, t, j));
        }
        ASSERT_EQ(bounds[static_cast<std::size_t>(j)], minimum_at(kv, page, 1, j));
        ASSERT_EQ(bounds[static_cast<std::size_t>(80 + j)], maximum_at(kv, page, 1, j));
      }
    }
  }
}

/// Keys whose sizes differ wildly: outlier channels, tiny ones, zeros.
Rows wild_rows(std::int64_t tokens, std::int32_t head_dim, unsigned seed, int span) {
  Rows rows(tokens, head_dim, seed);
  std::mt19937 random(seed);
  for (std::int64_t j = 0; j < head_dim; ++j) {
    const int exponent = static_cast<int>(random() % static_cast<unsigned>(2 * span + 1)) - span;
    for (std::int64_t t = 0; t < tokens; ++t) {
      float& k = rows.k[static_cast<std::size_t>(t * head_dim + j)];
      k = random() % 11 == 0 ? 0.0F : std::ldexp(k, exponent);
    }
  }
  return rows;
}

RC_GTEST_PROP(SummaryProperty, BoundsEveryStoredKeyAndWastesLittle, ()) {
  const auto type = *rc::gen::elementOf(std::vector<KvType>(std::begin(kTypes), std::end(kTypes)));
  const auto summary =
      *rc::gen::elementOf(std::vector<SummaryType>(std::begin(kSummaries), std::end(kSummaries)));
  const CacheShape shape = shape_of(type, summary, *rc::gen::element(64, 80, 96, 128, 256),
                                    *rc::gen::element(8, 16, 32, 64));
  const std::int64_t tokens = *rc::gen::inRange(1, 3 * shape.page_size);
  const Rows rows =
      wild_rows(tokens, shape.head_dim, *rc::gen::arbitrary<unsigned>(), *rc::gen::inRange(0, 13));
  KvCache cache(shape);
  poison(cache, 0xFF);
  const SequenceId id = cache.create();
  write(cache, id, rows, 0, tokens);
  const PagedKv kv = cache.layer(0);
  for (std::size_t p = 0; p < cache.pages(id).size(); ++p) {
    const std::int32_t page = cache.pages(id)[p];
    const std::int64_t valid = std::min<std::int64_t>(
        shape.page_size, tokens - static_cast<std::int64_t>(p) * shape.page_size);
    for (std::int64_t j = 0; j < shape.head_dim; ++j) {
      Extremes extremes;
      for (std::int64_t t = 0; t < valid; ++t) extremes.add(key_at(kv, page, 0, t, j));
      const float low = minimum_at(kv, page, 0, j);
      const float high = maximum_at(kv, page, 0, j);
      RC_ASSERT(low <= extremes.low);
      RC_ASSERT(high >= extremes.high);
      // Of a plain f16 summary one unit in the last place is lost, of a q8 one less than a step, of
      // a q4 one less than a step of the half-widths and, where the centre is half a step of its
      // own off, all of that step on one side.
      float step = 0;
      const std::byte* const bytes = kv.summary(page, 0);
      if (summary == SummaryType::kQ8) {
        step = number_at(KvType::kF16, bytes + 2 * shape.head_dim, j / kScaleBlock);
      } else if (summary == SummaryType::kQ4) {
        const std::byte* const scales = bytes + shape.head_dim;
        step = number_at(KvType::kF16, scales, j / kScaleBlock) +
               number_at(KvType::kF16, scales, shape.scale_blocks() + j / kScaleBlock);
        step *= 1 + 1e-6F;  // the middle is rounded before it becomes a centre
      } else if (type == KvType::kQ8_0) {
        step = std::max(std::ldexp(std::max(std::abs(low), std::abs(high)), -10), 0x1p-24F);
      }
      RC_ASSERT(extremes.low - low <= step);
      RC_ASSERT(high - extremes.high <= step);
    }
  }
}

/// All bytes of a sequence's pages and summaries that its tokens determine.
std::vector<std::byte> bytes_of(const KvCache& cache, SequenceId id) {
  const CacheShape& shape = cache.shape();
  std::vector<std::byte> bytes;
  for (std::int32_t l = 0; l < shape.num_layers; ++l) {
    const PagedKv kv = cache.layer(l);
    for (const std::int32_t page : cache.pages(id)) {
      for (std::int32_t h = 0; h < shape.num_kv_heads; ++h) {
        const std::byte* summary = kv.summary(page, h);
        bytes.insert(bytes.end(), summary, summary + shape.summary_bytes());
      }
    }
  }
  return bytes;
}

TEST(QuantisedRoutes, EveryRouteLeavesTheSameSummary) {
  for (const KvType type : kTypes) {
    for (const SummaryType summary : kSummaries) {
      for (const std::int32_t size : {8, 16, 32, 64}) {
        const CacheShape shape = shape_of(type, summary, 80, size);
        const std::int64_t tokens = 2 * size + size / 2 + 3;
        KvCache cache(shape);
        poison(cache, 0xFF);
        const Rows rows(tokens, 80, 5);
        const Rows other(tokens, 80, 6);
        const SequenceId whole = cache.create();
        write(cache, whole, rows, 0, tokens);
        const SequenceId pieces = cache.create();
        for (std::int64_t done = 0; done < tokens; ++done) write(cache, pieces, rows, done, 1);
        const SequenceId regrown = cache.create();
        write(cache, regrown, rows, 0, size + 3);
        write(cache, regrown, other, size + 3, size);
        cache.truncate(regrown, size + 3);
        write(cache, regrown, rows, size + 3, tokens - size - 3);
        const SequenceId forked = cache.fork_prefix(whole, size + 1);
        write(cache, forked, rows, size + 1, tokens - size - 1);
        for (const SequenceId id : {pieces, regrown, forked}) {
          EXPECT_EQ(bytes_of(cache, id), bytes_of(cache, whole)) << describe(shape);
        }
      }
    }
  }
}

class ForkedTail : public ::testing::TestWithParam<SummaryType> {};
INSTANTIATE_TEST_SUITE_P(QuantisedRoutes, ForkedTail, ::testing::ValuesIn(kRounded),
                         [](const auto& given) { return std::string(name_of(given.param)); });

TEST_P(ForkedTail, IsCopiedWithItsScales) {
  const CacheShape shape = shape_of(KvType::kQ8_0, GetParam(), 64, 16);
  KvCache cache(shape);
  const Rows rows(40, 64, 8);
  const SequenceId parent = cache.create();
  write(cache, parent, rows, 0, 20);
  const SequenceId child = cache.fork(parent);
  const auto before = bytes_of(cache, parent);
  write(cache, child, rows, 30, 3);
  EXPECT_EQ(bytes_of(cache, parent), before);
  const PagedKv kv = cache.layer(1);
  for (std::int64_t t = 0; t < 4; ++t) {
    for (std::int64_t j = 0; j < 64; ++j) {
      ASSERT_EQ(key_at(kv, cache.pages(child)[1], 1, t, j),
                key_at(kv, cache.pages(parent)[1], 1, t, j));
      ASSERT_EQ(value_at(kv, cache.pages(child)[1], 1, t, j),
                value_at(kv, cache.pages(parent)[1], 1, t, j));
    }
  }
}

TEST(QuantisedSummary, KeyThatIsNotFiniteShowsAsNaNUntilItIsGone) {
  const float inf = std::numeric_limits<float>::infinity();
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), inf, -inf}) {
    for (const KvType type : {KvType::kF16, KvType::kQ8_0}) {
      for (const SummaryType summary : kRounded) {
        const CacheShape shape = shape_of(type, summary, 64, 8);
        KvCache cache(shape);
        Rows rows(5, 64, 9);
        rows.k[64 + 40] = bad;
        const SequenceId id = cache.create();
        write(cache, id, rows, 0, 5);
        const PagedKv kv = cache.layer(0);
        EXPECT_TRUE(std::isnan(minimum_at(kv, cache.pages(id)[0], 0, 40)));
        EXPECT_TRUE(std::isnan(maximum_at(kv, cache.pages(id)[0], 0, 40)));
        EXPECT_TRUE(std::isfinite(maximum_at(kv, cache.pages(id)[0], 0, 3)));
        cache.truncate(id, 1);
        EXPECT_TRUE(std::isfinite(maximum_at(kv, cache.pages(id)[0], 0, 40)));
      }
    }
  }
}

/// The q4 summary of up to 256 channels.
struct Box {
  Box(const std::vector<float>& low, const std::vector<float>& high)
      : q(low.size()), scales((low.size() + 31) / 32 * 2) {
    quantise_summary_q4(low.data(), high.data(), static_cast<std::int32_t>(low.size()), q.data(),
                        scales.data());
  }
  float scale(std::size_t row, std::size_t channel) const {
    return ggml_fp16_to_fp32(scales[row * scales.size() / 2 + channel / 32]);
  }
  int centre(std::size_t j) const { return q[j] / 8 - (q[j] >= 128 ? 32 : 0); }
  int half(std::size_t j) const { return q[j] % 8; }

  std::vector<std::uint8_t> q;
  std::vector<std::uint16_t> scales;  ///< of centres, then of half-widths
};

/// Middles 1, 15 and -3.75: the scale is 1, the centres 1, 15, -4. From there to the bounds 2, 0.5
/// and 0.75; 2 / 7 is no f16 number, the next above is 1171 / 4096, and 7, 2 and 3 steps reach.
TEST(QuantiseQ4, WorkedValues) {
  const Box box({-1, 14.5F, -4.25F}, {3, 15.5F, -3.25F});
  EXPECT_EQ(box.q, (std::vector<std::uint8_t>{0x0F, 0x7A, 0xE3}));
  EXPECT_EQ(box.scales, (std::vector<std::uint16_t>{0x3C00, 0x3493}));
}

/// From centre -1 to 2^-30 it is more than 1, which float subtraction does not see.
TEST(QuantiseQ4, WorkedValues_ADistanceThatRoundsDownTakesAnotherStep) {
  const Box box({8, -2, -2}, {22, 0x1p-30F, 0});
  EXPECT_EQ(box.q, (std::vector<std::uint8_t>{0x7F, 0xFA, 0xF9}));
  EXPECT_EQ(box.scales, (std::vector<std::uint16_t>{0x3C00, 0x3C00}));
}

TEST(QuantiseQ4, KeysWithoutExtentOrSizeNeedNone) {
  const Box zeros(std::vector<float>(40, 0.0F), std::vector<float>(40, -0.0F));
  EXPECT_EQ(zeros.q, std::vector<std::uint8_t>(40, 0));
  EXPECT_EQ(zeros.scales, std::vector<std::uint16_t>(4, 0));
  const Box points({15, -15, 4}, {15, -15, 4});
  EXPECT_EQ(points.q, (std::vector<std::uint8_t>{0x78, 0x88, 0x20}));
  EXPECT_EQ(points.scales, (std::vector<std::uint16_t>{0x3C00, 0}));
}

TEST(QuantiseQ4, BlockBeyondItsScalesIsNaNAndItsNeighbourIsNot) {
  const float inf = std::numeric_limits<float>::infinity();
  const float nan = std::nanf("");
  // 15 · 65504 and 7 · 65504 are the greatest centre and half-width.
  const std::pair<float, float> bad[] = {{1e6F, 1e6F},   {-5e5F, 5e5F},  {-inf, 1}, {1, inf},
                                         {-inf, inf},    {nan, nan},     {nan, 1},  {1, nan},
                                         {3e38F, 3e38F}, {-3e38F, 3e38F}};
  for (const auto& [least, most] : bad) {
    std::vector<float> low(64, -1);
    std::vector<float> high(64, 1);
    low[5] = least;
    high[5] = most;
    const Box box(low, high);
    EXPECT_TRUE(std::isnan(box.scale(0, 5)) && std::isnan(box.scale(1, 5))) << least << ' ' << most;
    EXPECT_TRUE(std::all_of(box.q.begin(), box.q.begin() + 32, [](auto q) { return q == 0; }));
    EXPECT_EQ(box.scale(0, 40), 0);
    EXPECT_EQ(box.half(40), 7);
  }
  const Box most({-4e5F, 9.8e5F}, {4e5F, 9.8e5F});
  EXPECT_TRUE(std::isfinite(most.scale(0, 0)) && std::isfinite(most.scale(1, 0)));
}

/// Bounds of all magnitudes, channels that differ by up to 2^50 among them. In float64 the decoded
/// bounds are exact: they hold as numbers, not only after rounding.
TEST(QuantiseQ4, BoxHoldsTheBoundsExactlyAndIsTheLeastFromItsCentre) {
  std::mt19937 random(77);
  std::uniform_real_distribution<float> uniform(-1, 1);
  for (int trial = 0; trial < 20000; ++trial) {
    const std::size_t channels = trial % 3 == 0 ? 80 : 64;
    const int span = static_cast<int>(random() % 26);
    const int shift = static_cast<int>(random() % 30) - 20;
    std::vector<float> low(channels);
    std::vector<float> high(channels);
    for (std::size_t j = 0; j < channels; ++j) {
      const int power = static_cast<int>(random() % static_cast<unsigned>(2 * span + 1)) - span;
      const float a = std::ldexp(uniform(random), std::min(power + shift, 17));
      const float b = random() % 4 == 0 ? a : std::ldexp(uniform(random), std::min(shift, 17));
      low[j] = std::min(a, b);
      high[j] = std::max(a, b);
    }
    const Box box(low, high);
    for (std::size_t j = 0; j < channels; ++j) {
      const double centre_scale = box.scale(0, j);
      const double half_scale = box.scale(1, j);
      const double c = box.centre(j) * centre_scale;
      const double h = box.half(j) * half_scale;
      ASSERT_LE(c - h, low[j]) << "trial " << trial << " channel " << j;
      ASSERT_GE(c + h, high[j]) << "trial " << trial << " channel " << j;
      ASSERT_LE(std::abs(box.centre(j)), 15);
      ASSERT_LE(std::abs((double{low[j]} + high[j]) / 2 - c),
                0.5 * centre_scale + 1e-6 * std::abs(c) + 1e-30);
      if (box.half(j) == 0) continue;
      const double less = h - half_scale;
      ASSERT_TRUE(c - less > low[j] || c + less < high[j] ||
                  // Less than float arithmetic sees.
                  std::min(low[j] - (c - less), c + less - high[j]) < 1e-6 * (std::abs(c) + h))
          << "trial " << trial << " channel " << j;
    }
  }
}

TEST(Quantise, F16NeighboursEncloseTheNumber) {
  for (const float x : {0.0F, -0.0F, 1.0F, -1.0F, 0.1F, -0.1F, 65504.0F, 1e-9F, -1e-9F, 5.9e-8F}) {
    EXPECT_LE(ggml_fp16_to_fp32(f16_at_most(x)), x);
    EXPECT_GE(ggml_fp16_to_fp32(f16_at_least(x)), x);
    EXPECT_LE(ggml_fp16_to_fp32(f16_at_least(x)) - ggml_fp16_to_fp32(f16_at_most(x)),
              std::max(std::ldexp(std::abs(x), -10), 0x1p-24F));
  }
  EXPECT_EQ(f16_at_least(1.0F), 0x3C00);
  EXPECT_EQ(f16_at_most(1.0F), 0x3C00);
  EXPECT_EQ(f16_at_least(1e-9F), 0x0001);
  EXPECT_EQ(f16_at_most(-1e-9F), 0x8001);
  EXPECT_TRUE(std::isnan(ggml_fp16_to_fp32(f16_at_most(std::nanf("")))));
}

}  // namespace
}  // namespace quest
