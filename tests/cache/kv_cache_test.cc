// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "quest/kv_cache.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "cache/kv_access.h"
#include "quest/error.h"

namespace quest {
namespace {

using namespace quest::testing;

std::vector<std::int32_t> table(const KvCache& cache, SequenceId id) {
  const auto pages = cache.pages(id);
  return {pages.begin(), pages.end()};
}

using Table = std::vector<std::int32_t>;

/// Text of the exception that `call` throws; empty if it throws none.
template <typename Exception, typename Call>
std::string message_of(const Call& call) {
  try {
    call();
  } catch (const Exception& error) {
    return error.what();
  }
  return "";
}

TEST(KvCache, GrowingSequenceGetsConsecutivePages) {
  KvCache cache(small_shape(64));
  const SequenceId id = cache.create();
  for (int t = 0; t < 100; ++t) cache.reserve(id, 1);
  EXPECT_EQ(table(cache, id), (Table{0, 1, 2, 3, 4, 5, 6}));
}

TEST(KvCache, TailLengths_PageTableHasNoPageTooMany) {
  for (std::int32_t size : {8, 16, 32, 64}) {
    for (std::int64_t length : {0, 1, size - 1, size, size + 1, 2 * size, 3 * size}) {
      KvCache cache(small_shape(8, size));
      const SequenceId at_once = cache.create();
      cache.reserve(at_once, length);
      EXPECT_EQ(cache.length(at_once), length);
      EXPECT_EQ(cache.pages(at_once).size(), (length + size - 1) / size);
      const SequenceId one_by_one = cache.create();
      for (std::int64_t t = 0; t < length; ++t) cache.reserve(one_by_one, 1);
      EXPECT_EQ(cache.pages(one_by_one).size(), cache.pages(at_once).size());
    }
  }
}

TEST(Fork, SharesAllPagesAndCopiesNothing) {
  KvCache cache(small_shape(4));
  const SequenceId parent = cache.create();
  write(cache, parent, Rows(40, 64, 1), 0, 40);
  const SequenceId child = cache.fork(parent);
  EXPECT_EQ(table(cache, child), table(cache, parent));
  EXPECT_EQ(cache.length(child), 40);
  EXPECT_EQ(cache.free_pages(), 1);
  for (std::int32_t page : cache.pages(parent)) EXPECT_EQ(cache.reference_count(page), 2);
}

/// Two branches of a shared tail grow with keys of their own; `child_first` says who copies.
void grow_both_branches(bool child_first) {
  KvCache cache(small_shape(8));
  const Rows common(20, 64, 1);
  const SequenceId parent = cache.create();
  write(cache, parent, common, 0, 20);
  const SequenceId child = cache.fork(parent);
  const std::int32_t shared_tail = cache.pages(parent)[1];

  Rows parent_rows(24, 64, 2);
  Rows child_rows(24, 64, 3);
  for (Rows* rows : {&parent_rows, &child_rows}) {
    std::copy(common.k.begin(), common.k.end(), rows->k.begin());
    std::copy(common.v.begin(), common.v.end(), rows->v.begin());
  }
  const SequenceId first = child_first ? child : parent;
  const SequenceId second = child_first ? parent : child;
  write(cache, first, child_first ? child_rows : parent_rows, 20, 4);
  EXPECT_EQ(cache.pages(second)[1], shared_tail) << "the one that did not grow keeps the page";
  EXPECT_NE(cache.pages(first)[1], shared_tail) << "the one that grows first copies";
  EXPECT_EQ(cache.reference_count(shared_tail), 1);
  EXPECT_EQ(wrong_elements(cache, second, common), 0);
  EXPECT_EQ(wrong_summaries(cache, second), 0);

  write(cache, second, child_first ? parent_rows : child_rows, 20, 4);
  EXPECT_EQ(cache.pages(second)[1], shared_tail) << "the last reader need not copy";
  EXPECT_EQ(cache.pages(first)[0], cache.pages(second)[0]) << "the sealed page stays shared";
  EXPECT_EQ(wrong_elements(cache, parent, parent_rows), 0);
  EXPECT_EQ(wrong_elements(cache, child, child_rows), 0);
  EXPECT_EQ(wrong_summaries(cache, parent), 0);
  EXPECT_EQ(wrong_summaries(cache, child), 0);
}

TEST(Fork, CopyOnWrite_ChildGrowsFirst) { grow_both_branches(true); }
TEST(Fork, CopyOnWrite_ParentGrowsFirst) { grow_both_branches(false); }

TEST(Fork, SealedTailIsNotCopied) {
  KvCache cache(small_shape(4));
  const SequenceId parent = cache.create();
  write(cache, parent, Rows(32, 64, 1), 0, 32);
  const SequenceId child = cache.fork(parent);
  write(cache, child, Rows(33, 64, 2), 32, 1);
  EXPECT_EQ(cache.reference_count(cache.pages(parent)[1]), 2);
  EXPECT_EQ(table(cache, child), (Table{0, 1, 2}));
}

TEST(Fork, OutlivesItsParent) {
  KvCache cache(small_shape(4));
  const Rows rows(20, 64, 1);
  const SequenceId parent = cache.create();
  write(cache, parent, rows, 0, 20);
  const SequenceId child = cache.fork(parent);
  cache.release(parent);
  EXPECT_FALSE(cache.contains(parent));
  EXPECT_EQ(wrong_elements(cache, child, rows), 0);
  cache.release(child);
  EXPECT_EQ(cache.free_pages(), 4);
}

TEST(ForkPrefix, WholePagesAreShared) {
  KvCache cache(small_shape(4));
  const SequenceId parent = cache.create();
  write(cache, parent, Rows(40, 64, 1), 0, 40);
  const SequenceId child = cache.fork_prefix(parent, 32);
  EXPECT_EQ(table(cache, child), (Table{0, 1}));
  EXPECT_EQ(cache.free_pages(), 1);
  EXPECT_EQ(cache.pages(cache.fork_prefix(parent, 0)).size(), 0U);
}

TEST(ForkPrefix, InsideAPageCopiesItAndForgetsLaterKeys) {
  KvCache cache(small_shape(8));
  Rows rows(40, 64, 1);
  for (std::size_t j = 0; j < 64; ++j) rows.k[std::size_t{20} * 64 + j] = 500;  // token 20
  const SequenceId parent = cache.create();
  write(cache, parent, rows, 0, 40);
  const SequenceId child = cache.fork_prefix(parent, 20);
  EXPECT_EQ(table(cache, child), (Table{0, 3}));
  EXPECT_EQ(cache.reference_count(0), 2);
  EXPECT_EQ(cache.reference_count(1), 1);
  EXPECT_EQ(wrong_summaries(cache, child), 0);
  EXPECT_LT(maximum_at(cache.layer(0), 3, 0, 0), 500);
  EXPECT_EQ(maximum_at(cache.layer(0), 1, 0, 0), 500) << "the parent's page keeps its summary";
  EXPECT_EQ(wrong_elements(cache, child, rows), 0);
}

TEST(Truncate, SharedTailCutInsideIsCopied) {
  KvCache cache(small_shape(4));
  const Rows rows(20, 64, 1);
  const SequenceId parent = cache.create();
  write(cache, parent, rows, 0, 20);
  const SequenceId child = cache.fork(parent);
  cache.truncate(child, 18);
  EXPECT_EQ(table(cache, child), (Table{0, 2}));
  EXPECT_EQ(wrong_summaries(cache, child), 0);
  EXPECT_EQ(wrong_summaries(cache, parent), 0);
  EXPECT_EQ(wrong_elements(cache, parent, rows), 0);
}

TEST(Truncate, AtAPageBoundaryNeedsNoPage) {
  KvCache cache(small_shape(3));
  const SequenceId parent = cache.create();
  write(cache, parent, Rows(40, 64, 1), 0, 40);
  const SequenceId child = cache.fork(parent);
  cache.truncate(child, 32);
  EXPECT_EQ(table(cache, child), (Table{0, 1}));
  EXPECT_EQ(cache.reference_count(2), 1);
}

TEST(Truncate, MayUseThePageThatItFrees) {
  KvCache cache(small_shape(3));
  const SequenceId parent = cache.create();
  write(cache, parent, Rows(20, 64, 1), 0, 16);
  const SequenceId child = cache.fork(parent);
  write(cache, child, Rows(40, 64, 2), 16, 24);
  ASSERT_EQ(cache.free_pages(), 0);
  cache.truncate(child, 10);
  EXPECT_EQ(cache.length(child), 10);
  EXPECT_EQ(wrong_summaries(cache, child), 0);
  EXPECT_EQ(wrong_summaries(cache, parent), 0);
  EXPECT_EQ(cache.free_pages(), 1);
}

TEST(OutOfPagesError, ReserveLeavesEverythingIntact) {
  KvCache cache(small_shape(3));
  const Rows rows(20, 64, 1);
  const SequenceId parent = cache.create();
  write(cache, parent, rows, 0, 20);
  const SequenceId child = cache.fork(parent);
  // One page for the copy of the shared tail and one more for tokens 32 and 33.
  EXPECT_EQ(message_of<OutOfPages>([&] { cache.reserve(child, 14); }),
            "KV cache is full: 2 pages of 16 tokens needed, 1 of 3 free; use a larger context or "
            "release a sequence");
  EXPECT_EQ(cache.length(child), 20);
  EXPECT_EQ(table(cache, child), (Table{0, 1}));
  EXPECT_EQ(cache.free_pages(), 1);
  EXPECT_EQ(cache.reference_count(1), 2);
  EXPECT_EQ(wrong_elements(cache, child, rows), 0);
  cache.reserve(child, 12);
  EXPECT_EQ(cache.free_pages(), 0);
}

TEST(OutOfPagesError, HugeCountsDoNotWrap) {
  KvCache cache(small_shape(3));
  const SequenceId id = cache.create();
  cache.reserve(id, 5);
  for (std::int64_t count : {std::int64_t{1} << 40, std::numeric_limits<std::int64_t>::max()}) {
    EXPECT_THROW(cache.reserve(id, count), OutOfPages);
  }
  EXPECT_EQ(cache.length(id), 5);
}

TEST(OutOfPagesError, ForkPrefixAndTruncateLeaveEverythingIntact) {
  KvCache cache(small_shape(2));
  const Rows rows(20, 64, 1);
  const SequenceId parent = cache.create();
  write(cache, parent, rows, 0, 20);
  EXPECT_NE(message_of<OutOfPages>([&] { cache.fork_prefix(parent, 5); }).find("1 pages"),
            std::string::npos);
  EXPECT_EQ(cache.reference_count(0), 1);

  const SequenceId child = cache.fork(parent);
  EXPECT_NE(message_of<OutOfPages>([&] { cache.truncate(child, 18); }).find("0 of 2 free"),
            std::string::npos);
  EXPECT_EQ(cache.length(child), 20);
  EXPECT_EQ(table(cache, child), (Table{0, 1}));
  EXPECT_EQ(wrong_elements(cache, child, rows), 0);
  EXPECT_EQ(wrong_summaries(cache, child), 0);
}

TEST(Release, ReturnsPagesForTheNextSequence) {
  KvCache cache(small_shape(2));
  const SequenceId first = cache.create();
  cache.reserve(first, 32);
  cache.release(first);
  EXPECT_EQ(cache.free_pages(), 2);
  const SequenceId second = cache.create();
  EXPECT_NE(second, first) << "ids are never reused";
  cache.reserve(second, 32);
  EXPECT_EQ(table(cache, second), (Table{0, 1}));
}

TEST(KvCacheErrors, UnknownSequencesAreNamed) {
  KvCache cache(small_shape(2));
  const SequenceId gone = cache.create();
  cache.release(gone);
  const std::string text = "KV cache: no sequence " + std::to_string(gone);
  EXPECT_EQ(message_of<InvalidArgument>([&] { cache.release(gone); }), text);
  EXPECT_EQ(message_of<InvalidArgument>([&] { cache.reserve(gone, 1); }), text);
  EXPECT_EQ(message_of<InvalidArgument>([&] { cache.fork(gone); }), text);
  EXPECT_EQ(message_of<InvalidArgument>([&] { cache.fork_prefix(gone, 0); }), text);
  EXPECT_EQ(message_of<InvalidArgument>([&] { cache.truncate(gone, 0); }), text);
  EXPECT_EQ(message_of<InvalidArgument>([&] { cache.length(gone); }), text);
  EXPECT_EQ(message_of<InvalidArgument>([&] { cache.pages(gone); }), text);
}

TEST(KvCacheErrors, TokensOutsideTheReservedOnesAreRefused) {
  KvCache cache(small_shape(4));
  const SequenceId id = cache.create();
  cache.reserve(id, 20);
  const Rows rows(64, 64, 1);
  const auto append = [&](std::int32_t layer, std::int32_t head, std::int64_t position,
                          std::int64_t count) {
    cache.append(layer, head, id, position, count, rows.k.data(), 64, rows.v.data(), 64);
  };
  EXPECT_THROW(append(0, 0, 0, 21), InvalidArgument);
  EXPECT_THROW(append(0, 0, 20, 1), InvalidArgument);
  EXPECT_THROW(append(0, 0, -1, 1), InvalidArgument);
  EXPECT_THROW(append(0, 0, 0, -1), InvalidArgument);
  EXPECT_THROW(append(2, 0, 0, 1), InvalidArgument);
  EXPECT_THROW(append(-1, 0, 0, 1), InvalidArgument);
  EXPECT_THROW(append(0, 2, 0, 1), InvalidArgument);
  EXPECT_THROW(cache.summarise(0, 0, id, 20, 1), InvalidArgument);
  EXPECT_THROW(cache.reserve(id, -1), InvalidArgument);
  EXPECT_THROW(cache.truncate(id, 21), InvalidArgument);
  EXPECT_THROW(cache.truncate(id, -1), InvalidArgument);
  EXPECT_THROW(cache.fork_prefix(id, 21), InvalidArgument);
  EXPECT_THROW(cache.layer(2), InvalidArgument);
  EXPECT_THROW(cache.reference_count(4), InvalidArgument);
  append(0, 0, 20, 0);  // nothing at the end is fine
}

TEST(KvCacheErrors, SharedPagesCannotBeWritten) {
  KvCache cache(small_shape(4));
  const Rows rows(20, 64, 1);
  const SequenceId parent = cache.create();
  write(cache, parent, rows, 0, 20);
  cache.fork(parent);
  EXPECT_THROW(cache.append(0, 0, parent, 19, 1, rows.k.data(), 64, rows.v.data(), 64),
               InvalidArgument);
  EXPECT_THROW(cache.summarise(0, 0, parent, 0, 1), InvalidArgument);
  EXPECT_EQ(wrong_elements(cache, parent, rows), 0);
}

TEST(KvCacheShape, BadShapesAreRefusedByField) {
  const auto refusal = [](auto change) {
    CacheShape shape = small_shape(4);
    change(shape);
    return message_of<InvalidArgument>([&] { KvCache cache(shape); });
  };
  EXPECT_EQ(refusal([](CacheShape& s) { s.page_size = 12; }),
            "cache shape: page_size must be one of 8, 16, 32, 64, not 12");
  EXPECT_EQ(refusal([](CacheShape& s) { s.head_dim = 72; }),
            "cache shape: head_dim must be one of 64, 80, 96, 128, 256, not 72");
  const auto names = [&](auto change, const char* field) {
    return refusal(change).find(field) != std::string::npos;
  };
  EXPECT_TRUE(names([](CacheShape& s) { s.num_layers = 0; }, "num_layers"));
  EXPECT_TRUE(names([](CacheShape& s) { s.num_kv_heads = -1; }, "num_kv_heads"));
  EXPECT_TRUE(names([](CacheShape& s) { s.num_pages = 0; }, "num_pages"));
  EXPECT_TRUE(names([](CacheShape& s) { s.num_pages = std::int64_t{1} << 31; }, "num_pages"));
  EXPECT_TRUE(names([](CacheShape& s) { s.page_size = 0; }, "page_size"));
  EXPECT_TRUE(names([](CacheShape& s) { s.type = static_cast<KvType>(9); }, "type"));
  EXPECT_TRUE(
      names([](CacheShape& s) { s.summary_type = static_cast<SummaryType>(9); }, "summary_type"));
  EXPECT_TRUE(names(
      [](CacheShape& s) {
        s.num_pages = s.num_layers = s.num_kv_heads = std::numeric_limits<std::int32_t>::max();
      },
      "overflow"));
}

TEST(PlannedBytes, AreKeysValuesAndSummaries) {
  // One head, d = 128, 16-bit, 65,536 tokens, S = 16 (SPEC S8): 32 MiB of K and V, 2 MiB summaries.
  CacheShape shape;
  shape.num_layers = 1;
  shape.num_kv_heads = 1;
  shape.head_dim = 128;
  shape.num_pages = 65536 / 16;
  EXPECT_EQ(KvCache::planned_bytes(shape), std::int64_t{34} << 20);
}

TEST(PlannedBytes, StayWithinSevenPercentOfPlainKv) {
  for (KvType type : {KvType::kF32, KvType::kF16, KvType::kBF16}) {
    const CacheShape shape = small_shape(512, 16, type);
    const double plain = 2.0 * 2 * 2 * 64 * 512 * 16 * static_cast<double>(size_of(type));
    EXPECT_LE(static_cast<double>(KvCache::planned_bytes(shape)), 1.07 * plain);
  }
  CacheShape shape = small_shape(512, 16, KvType::kQ8_0);
  shape.summary_type = SummaryType::kQ8;
  // One byte an element and two for every 32 of them.
  const double plain = 2.0 * 2 * 2 * 64 * 512 * 16 * (1 + 2.0 / 32);
  EXPECT_LE(static_cast<double>(KvCache::planned_bytes(shape)), 1.07 * plain);
}

TEST(PlannedBytes, LastByteOfTheLastSummaryIsInside) {
  const CacheShape shape = small_shape(5);
  const KvCache cache(shape);
  const std::byte* end = cache.layer(1).summary(4, 1) + shape.summary_bytes();
  EXPECT_EQ(end - cache.layer(0).k, KvCache::planned_bytes(shape));
}

}  // namespace
}  // namespace quest
