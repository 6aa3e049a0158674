// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
// q8_0 pages and q8 summaries (SPEC S7.6).
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
constexpr SummaryType kSummaries[] = {SummaryType::kPlain, SummaryType::kQ8};

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
      // Of a plain f16 summary one unit in the last place is lost, of a q8 one less than a step.
      float step = 0;
      if (summary == SummaryType::kQ8) {
        step = number_at(KvType::kF16, kv.summary(page, 0) + 2 * shape.head_dim, j / kScaleBlock);
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

TEST(QuantisedRoutes, ForkCopiesScalesWithItsTail) {
  const CacheShape shape = shape_of(KvType::kQ8_0, SummaryType::kQ8, 64, 16);
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
      const CacheShape shape = shape_of(type, SummaryType::kQ8, 64, 8);
      KvCache cache(shape);
      Rows rows(5, 64, 9);
      rows.k[64 + 40] = bad;
      const SequenceId id = cache.create();
      write(cache, id, rows, 0, 5);
      const PagedKv kv = cache.layer(0);
      EXPECT_TRUE(std::isnan(maximum_at(kv, cache.pages(id)[0], 0, 40)));
      EXPECT_TRUE(std::isfinite(maximum_at(kv, cache.pages(id)[0], 0, 3)));
      cache.truncate(id, 1);
      EXPECT_TRUE(std::isfinite(maximum_at(kv, cache.pages(id)[0], 0, 40)));
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
