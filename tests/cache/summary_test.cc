// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>

#include "cache/append.h"
#include "cache/kv_access.h"

namespace quest {
namespace {

using namespace quest::testing;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

/// A cache of one layer and head whose keys use the first two channels only.
class TwoChannels {
 public:
  explicit TwoChannels(KvType type = KvType::kF16, std::int64_t pages = 4, std::int32_t size = 8)
      : cache_(shape(type, pages, size)), id_(cache_.create()) {}

  void add(float x, float y) {
    std::array<float, 64> k{x, y};
    const std::array<float, 64> v{};
    const std::int64_t position = cache_.length(id_);
    cache_.reserve(id_, 1);
    cache_.append(0, 0, id_, position, 1, k.data(), 64, v.data(), 64);
    cache_.summarise(0, 0, id_, position, 1);
  }
  std::array<float, 4> summary(std::size_t logical_page) const {
    const PagedKv kv = cache_.layer(0);
    const std::int32_t page = cache_.pages(id_)[logical_page];
    return {minimum_at(kv, page, 0, 0), minimum_at(kv, page, 0, 1), maximum_at(kv, page, 0, 0),
            maximum_at(kv, page, 0, 1)};
  }
  /// SPEC S3.1 with the stored summary.
  float bound(std::size_t logical_page, float qx, float qy) const {
    const auto [mx, my, Mx, My] = summary(logical_page);
    return std::max(qx * mx, qx * Mx) + std::max(qy * my, qy * My);
  }
  KvCache& cache() { return cache_; }
  SequenceId id() const { return id_; }

 private:
  static CacheShape shape(KvType type, std::int64_t pages, std::int32_t size) {
    CacheShape shape = small_shape(pages, size, type);
    shape.num_layers = 1;
    shape.num_kv_heads = 1;
    return shape;
  }
  KvCache cache_;
  SequenceId id_;
};

using Summary = std::array<float, 4>;  // minimum x, y, maximum x, y

TEST(Summary, TwoDimensionalPage) {  // SPEC S3.2
  TwoChannels page;
  page.add(1, 4);
  page.add(3, -2);
  page.add(-1, 1);
  EXPECT_EQ(page.summary(0), (Summary{-1, -2, 3, 4}));
  EXPECT_EQ(page.bound(0, 2, -1), 8);
}

TEST(Summary, SameBoxFromOtherKeys) {  // SPEC S3.2
  TwoChannels page;
  page.add(3, 4);
  page.add(-1, -2);
  EXPECT_EQ(page.summary(0), (Summary{-1, -2, 3, 4}));
  EXPECT_EQ(page.bound(0, 2, -1), 8);
}

TEST(Summary, TwoSteps_AppendMovesTheOtherPageAhead) {  // SPEC S3.2
  // S = 3 in the paper's example; here page A is filled up with copies of its own keys.
  TwoChannels pages;
  const std::array<std::array<float, 2>, 3> a{{{1, 0}, {3, -2}, {-1, 1}}};
  for (std::size_t t = 0; t < 8; ++t) pages.add(a[t % 3][0], a[t % 3][1]);
  pages.add(0, 2);
  pages.add(1, 4);
  EXPECT_EQ(pages.summary(0), (Summary{-1, -2, 3, 1}));
  EXPECT_EQ(pages.bound(0, 2, -1), 8);
  EXPECT_EQ(pages.bound(1, 2, -1), 0);
  EXPECT_EQ(pages.bound(1, 0, 1), 4);

  pages.add(-2, 5);
  EXPECT_EQ(pages.summary(1), (Summary{-2, 2, 1, 5}));
  EXPECT_EQ(pages.bound(0, 0, 1), 1);
  EXPECT_EQ(pages.bound(1, 0, 1), 5);
}

TEST(Summary, IsOfTheRoundedKeysThatAttentionReads) {
  const float third = 1.0F / 3.0F;
  for (KvType type : {KvType::kF32, KvType::kF16, KvType::kBF16}) {
    TwoChannels page(type);
    page.add(third, -third);
    EXPECT_EQ(page.summary(0)[0], rounded(type, third)) << name_of(type);
    EXPECT_EQ(page.summary(0)[1], rounded(type, -third)) << name_of(type);
    EXPECT_EQ(type == KvType::kF32, page.summary(0)[0] == third) << name_of(type);
  }
}

TEST(Summary, MinusZeroIsBelowPlusZeroInEitherOrder) {
  for (KvType type : {KvType::kF32, KvType::kF16, KvType::kBF16}) {
    TwoChannels page(type);
    page.add(-0.0F, 0.0F);
    page.add(0.0F, -0.0F);
    const Summary summary = page.summary(0);
    EXPECT_TRUE(std::signbit(summary[0]) && std::signbit(summary[1])) << name_of(type);
    EXPECT_FALSE(std::signbit(summary[2]) || std::signbit(summary[3])) << name_of(type);
  }
}

TEST(Summary, InfinitiesAreExtremesLikeOthers) {
  for (KvType type : {KvType::kF32, KvType::kF16, KvType::kBF16}) {
    TwoChannels page(type);
    page.add(-kInf, 1);
    page.add(2, kInf);
    EXPECT_EQ(page.summary(0), (Summary{-kInf, 1, 2, kInf})) << name_of(type);
  }
}

TEST(Summary, NaNKeyIsNotLostByLaterKeys) {
  for (KvType type : {KvType::kF32, KvType::kF16, KvType::kBF16}) {
    for (float nan : {kNaN, -kNaN}) {
      TwoChannels page(type);
      page.add(1, 1);
      page.add(nan, 2);
      page.add(-5, 3);
      page.add(5, 0);
      const Summary summary = page.summary(0);
      EXPECT_TRUE(std::isnan(summary[0]) && std::isnan(summary[2])) << name_of(type);
      EXPECT_EQ(summary[1], 0);
      EXPECT_EQ(summary[3], 3);
      page.cache().truncate(page.id(), 1);
      EXPECT_EQ(page.summary(0), (Summary{1, 1, 1, 1})) << "the NaN key is gone";
    }
  }
}

TEST(TailPage_RollbackForgetsRemovedExtreme, InsideThePage) {
  TwoChannels page;
  page.add(1, 2);
  page.add(2, 1);
  page.add(100, -100);
  page.cache().truncate(page.id(), 2);
  EXPECT_EQ(page.summary(0), (Summary{1, 1, 2, 2}));
  page.add(3, 0);
  EXPECT_EQ(page.summary(0), (Summary{1, 0, 3, 2}));
}

TEST(TailPage_RollbackForgetsRemovedExtreme, InAPageThatWasSealed) {
  TwoChannels page;
  for (int t = 0; t < 8; ++t) page.add(t == 5 ? 100.0F : 1.0F, t == 6 ? -100.0F : 2.0F);
  page.add(50, 50);
  page.cache().truncate(page.id(), 5);
  EXPECT_EQ(page.summary(0), (Summary{1, 2, 1, 2}));
  EXPECT_EQ(page.cache().pages(page.id()).size(), 1U);
}

TEST(RecycledPage, StartsAFreshSummary) {  // SPEC S2.4
  for (KvType type : {KvType::kF32, KvType::kF16, KvType::kBF16}) {
    TwoChannels recycled(type, 1);
    for (int t = 0; t < 8; ++t) recycled.add(t % 2 == 0 ? 900.0F : -900.0F, 800);
    recycled.cache().truncate(recycled.id(), 0);
    EXPECT_EQ(recycled.cache().free_pages(), 1);

    TwoChannels fresh(type, 1);
    for (TwoChannels* page : {&recycled, &fresh}) {
      page->add(1, -3);
      page->add(2, -4);
    }
    EXPECT_EQ(recycled.summary(0), (Summary{1, -4, 2, -3})) << name_of(type);
    EXPECT_EQ(recycled.summary(0), fresh.summary(0)) << name_of(type);
  }
}

TEST(RecycledPage, PoisonNeverEntersASummary) {
  for (KvType type : {KvType::kF32, KvType::kF16, KvType::kBF16}) {
    const int infinity = type == KvType::kF16 ? 0x7C : 0x7F;  // 0x7C7C and 0x7F7F…: NaN or huge
    for (int byte : {0xFF, infinity, 0x00}) {
      for (std::int32_t size : {8, 16, 32, 64}) {
        for (std::int64_t tokens : {1, size - 1, size, size + 1, 2 * size, 3 * size + 2}) {
          KvCache cache(small_shape(4, size, type));
          poison(cache, byte);
          const Rows rows(tokens, 64, 11);
          const SequenceId id = cache.create();
          write(cache, id, rows, 0, tokens);
          EXPECT_EQ(wrong_summaries(cache, id), 0)
              << name_of(type) << " page size " << size << " tokens " << tokens;
          EXPECT_EQ(wrong_elements(cache, id, rows), 0)
              << name_of(type) << " page size " << size << " tokens " << tokens;
        }
      }
    }
  }
}

TEST(SummaryRoutes, EveryRouteEqualsBruteForce) {
  for (KvType type : {KvType::kF32, KvType::kF16, KvType::kBF16}) {
    for (std::int32_t head_dim : {64, 80, 96, 128, 256}) {
      for (std::int32_t size : {8, 16, 32, 64}) {
        const std::int64_t tokens = 2 * size + size / 2 + 3;
        CacheShape shape = small_shape(16, size, type);
        shape.head_dim = head_dim;
        KvCache cache(shape);
        poison(cache, 0xFF);
        const Rows rows(tokens, head_dim, 5);

        const SequenceId whole = cache.create();
        write(cache, whole, rows, 0, tokens);
        const SequenceId pieces = cache.create();
        for (std::int64_t done = 0, piece = 1; done < tokens;
             done += piece, piece = piece % 7 + 1) {
          piece = std::min(piece, tokens - done);
          write(cache, pieces, rows, done, piece);
        }
        const SequenceId regrown = cache.create();
        const Rows other(tokens, head_dim, 6);
        write(cache, regrown, rows, 0, size + 3);
        write(cache, regrown, other, size + 3, size);
        cache.truncate(regrown, size + 3);
        write(cache, regrown, rows, size + 3, tokens - size - 3);
        const SequenceId forked = cache.fork_prefix(whole, size + 1);
        write(cache, forked, rows, size + 1, tokens - size - 1);

        for (SequenceId id : {whole, pieces, regrown, forked}) {
          EXPECT_EQ(wrong_summaries(cache, id), 0)
              << "sequence " << id << ' ' << name_of(type) << " d " << head_dim << " S " << size;
          EXPECT_EQ(wrong_elements(cache, id, rows), 0)
              << "sequence " << id << ' ' << name_of(type) << " d " << head_dim << " S " << size;
        }
      }
    }
  }
}

}  // namespace
}  // namespace quest
