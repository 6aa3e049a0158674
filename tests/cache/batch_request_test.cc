// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "cache/kv_access.h"
#include "quest/batch.h"
#include "quest/error.h"

namespace quest {
namespace {

using namespace quest::testing;

TEST(AddRequest, LengthAndPagesAgreeAtEveryTail) {
  for (std::int32_t size : {8, 16, 32, 64}) {
    KvCache cache(small_shape(4, size));
    const SequenceId id = cache.create();
    for (std::int64_t length = 0; length <= 3 * size; ++length) {
      Batch batch;
      add_request(batch, cache, id, length > 0 ? 1 : 0, true);
      validate(batch, cache.shape());
      EXPECT_EQ(batch.kv_len(0, size), length);
      EXPECT_EQ(batch.num_pages(0), (length + size - 1) / size);
      cache.reserve(id, 1);
    }
  }
}

TEST(AddRequest, RequestsFollowOneAnother) {
  KvCache cache(small_shape(8));
  const SequenceId a = cache.create();
  const SequenceId empty = cache.create();
  const SequenceId b = cache.create();
  cache.reserve(a, 33);
  cache.reserve(b, 16);
  Batch batch;
  add_request(batch, cache, a, 3, false);
  add_request(batch, cache, empty, 0, true);
  add_request(batch, cache, b, 1, true);
  validate(batch, cache.shape());
  EXPECT_EQ(batch.q_indptr, (std::vector<std::int32_t>{0, 3, 3, 4}));
  EXPECT_EQ(batch.page_indptr, (std::vector<std::int32_t>{0, 3, 3, 4}));
  EXPECT_EQ(batch.page_indices, (std::vector<std::int32_t>{0, 1, 2, 3}));
  EXPECT_EQ(batch.last_page_len, (std::vector<std::int32_t>{1, 0, 16}));
  EXPECT_EQ(batch.sequences, (std::vector<std::int64_t>{a, empty, b}));
  EXPECT_EQ(batch.sparse, (std::vector<std::uint8_t>{0, 1, 1}));
  batch.clear();
  validate(batch, cache.shape());
  EXPECT_EQ(batch.num_requests(), 0);
  EXPECT_EQ(batch.num_rows(), 0);
}

TEST(AddRequest, RefusalLeavesTheBatchUnchanged) {
  KvCache cache(small_shape(8));
  const SequenceId id = cache.create();
  cache.reserve(id, 5);
  Batch batch;
  EXPECT_THROW(add_request(batch, cache, id, 6, true), InvalidArgument);
  EXPECT_THROW(add_request(batch, cache, id, -1, true), InvalidArgument);
  EXPECT_THROW(add_request(batch, cache, id + 1, 0, true), InvalidArgument);
  EXPECT_EQ(batch.num_requests(), 0);
  EXPECT_EQ(batch.q_indptr.size(), 1U);
  EXPECT_EQ(batch.page_indptr.size(), 1U);
}

}  // namespace
}  // namespace quest
