// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <vector>

#include "attention/attention_fixture.h"

namespace quest {
namespace {

using test::bare_policy;
using test::feed;
using test::small_shape;
using test::Tokens;

constexpr std::int64_t kMiB = 1 << 20;

/// Puts `tokens` straight into the cache, past the backend.
void write(KvCache& cache, SequenceId sequence, const Tokens& tokens) {
  const std::int64_t position = cache.length(sequence);
  cache.reserve(sequence, tokens.rows);
  cache.append(0, 0, sequence, position, tokens.rows, tokens.k.data(), tokens.kv_stride,
               tokens.v.data(), tokens.kv_stride);
  cache.summarise(0, 0, sequence, position, tokens.rows);
}

TEST(Counters, AgreeWithTheCostModelAt64k) {
  // SPEC S8: L = 65,536, S = 16, B = 4,096, d = 128, 16-bit, one head.
  const CacheShape shape{1, 1, 128, 16, KvType::kF16, 4096};
  KvCache cache(shape);
  auto backend = make_reference_backend(cache, bare_policy(4096));
  const SequenceId sequence = cache.create();
  Tokens context(shape, 1, 65535);
  context.fill(1);
  write(cache, sequence, context);
  Tokens row(shape, 1, 1);
  row.fill(2);
  feed(*backend, cache, sequence, row, true);

  const AttentionCounters& counters = backend->counters();
  EXPECT_EQ(counters.summary_bytes, 2 * kMiB);
  EXPECT_EQ(counters.k_bytes, kMiB);
  EXPECT_EQ(counters.v_bytes, kMiB);
  EXPECT_EQ(counters.bytes_read(), 4 * kMiB);
  EXPECT_EQ(counters.dense_bytes, 32 * kMiB);
  EXPECT_EQ(counters.pages_read, 256);
  EXPECT_EQ(counters.sparse_lists, 1);
  EXPECT_EQ(counters.dense_lists, 0);
}

TEST(Counters, DenseRowsReadNoSummariesAndCountTheirPagesOnceARow) {
  KvCache cache(small_shape(4, 8, 2));
  auto backend = make_reference_backend(cache, bare_policy(64));
  const SequenceId sequence = cache.create();
  Tokens tokens(cache.shape(), 3, 20);
  feed(*backend, cache, sequence, tokens, false);
  // Rows 0 … 7 see one page, 8 … 15 two, 16 … 19 three, for each of two KV heads.
  const std::int64_t pages = 2 * (8 * 1 + 8 * 2 + 4 * 3);
  const std::int64_t page_bytes = 8 * 64 * 4;
  const AttentionCounters& counters = backend->counters();
  EXPECT_EQ(counters.pages_read, pages);
  EXPECT_EQ(counters.k_bytes, pages * page_bytes);
  EXPECT_EQ(counters.v_bytes, pages * page_bytes);
  EXPECT_EQ(counters.dense_bytes, 2 * pages * page_bytes);
  EXPECT_EQ(counters.summary_bytes, 0);
  EXPECT_EQ(counters.dense_lists, 40);
  EXPECT_EQ(counters.sparse_lists, 0);

  // The budget covers all pages: still no summaries. Then the counters start anew.
  feed(*backend, cache, sequence, tokens.slice(0, 1), true);
  EXPECT_EQ(counters.summary_bytes, 0);
  EXPECT_EQ(counters.dense_lists, 42);
  backend->reset_counters();
  EXPECT_EQ(counters.bytes_read(), 0);
  EXPECT_EQ(counters.dense_lists, 0);
}

TEST(Counters, PerHeadCountsTheUnionThatWasRead) {
  // Two query heads that look at pages 0 and 1: with the tail, three of five pages.
  KvCache cache(small_shape(5));
  auto backend = make_reference_backend(cache, bare_policy(16, GroupMode::kPerHead));
  const SequenceId sequence = cache.create();
  Tokens context(cache.shape(), 2, 32);
  for (std::int64_t t = 0; t < 8; ++t) {
    context.k[t * 64] = 1;
    context.k[(8 + t) * 64 + 1] = 1;
  }
  write(cache, sequence, context);
  Tokens row(cache.shape(), 2, 1);
  row.q[0] = 1;
  row.q[64 + 1] = 1;
  const auto result = feed(*backend, cache, sequence, row, true);
  EXPECT_EQ(result.list(0), (std::vector<std::int32_t>{0, 1, 4}));
  const AttentionCounters& counters = backend->counters();
  EXPECT_EQ(counters.pages_read, 3);
  EXPECT_EQ(counters.k_bytes, 3 * cache.shape().page_bytes());
  EXPECT_EQ(counters.summary_bytes, 5 * cache.shape().summary_bytes())
      << "summaries are read once for the group";
  EXPECT_EQ(counters.sparse_lists, 1);
}

}  // namespace
}  // namespace quest
