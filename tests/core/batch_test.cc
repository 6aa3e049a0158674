// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "quest/batch.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <limits>
#include <string>

#include "quest/error.h"

namespace quest {
namespace {

CacheShape shape() {
  CacheShape shape;
  shape.num_layers = 1;
  shape.num_kv_heads = 1;
  shape.head_dim = 64;
  shape.page_size = 16;
  shape.num_pages = 10;
  return shape;
}

/// Three requests: 2 rows over 3 pages, an empty one, 1 row over 1 page.
Batch good_batch() {
  Batch batch;
  batch.q_indptr = {0, 2, 2, 3};
  batch.page_indptr = {0, 3, 3, 4};
  batch.page_indices = {4, 0, 9, 4};
  batch.last_page_len = {16, 0, 1};
  batch.sequences = {1, 2, 3};
  batch.sparse = {1, 0, 0};
  return batch;
}

/// The refusal of the good batch after `change`; empty if it was accepted.
template <typename Change>
std::string refusal(const Change& change) {
  Batch batch = good_batch();
  change(batch);
  try {
    validate(batch, shape());
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "";
}

TEST(ValidateBatch, AcceptsRaggedRequestsAndTheEmptyBatch) {
  EXPECT_EQ(refusal([](Batch&) {}), "");
  EXPECT_EQ(refusal([](Batch& b) { b.clear(); }), "");
  EXPECT_EQ(refusal([](Batch& b) { b.page_indices = {4, 4, 4, 4}; }), "") << "pages may repeat";
  EXPECT_EQ(refusal([](Batch& b) { b.q_indptr = {0, 48, 48, 49}; }), "") << "rows = tokens";
}

TEST(ValidateBatch, NamesRowCounts) {
  EXPECT_EQ(refusal([](Batch& b) { b.q_indptr.clear(); }),
            "batch: q_indptr has 0 entries instead of 4");
  EXPECT_EQ(refusal([](Batch& b) { b.q_indptr.push_back(3); }),
            "batch: q_indptr has 5 entries instead of 4");
  EXPECT_EQ(refusal([](Batch& b) { b.q_indptr[0] = 1; }),
            "batch: q_indptr starts at 1 instead of 0");
  EXPECT_EQ(refusal([](Batch& b) { b.q_indptr[2] = 1; }), "batch: q_indptr[2] falls from 2 to 1");
  EXPECT_EQ(refusal([](Batch& b) { b.q_indptr[1] = b.q_indptr[2] = b.q_indptr[3] = 49; }),
            "batch: q_indptr[1] gives request 0 49 rows but it has 48 tokens");
  EXPECT_EQ(refusal([](Batch& b) {
              b.q_indptr = {0, 2, 3, 4};
            }),
            "batch: q_indptr[2] gives request 1 1 rows but it has 0 tokens");
}

TEST(ValidateBatch, NamesPageTables) {
  EXPECT_EQ(refusal([](Batch& b) { b.page_indptr.pop_back(); }),
            "batch: page_indptr has 3 entries instead of 4");
  EXPECT_EQ(refusal([](Batch& b) { b.page_indptr[0] = -1; }),
            "batch: page_indptr starts at -1 instead of 0");
  EXPECT_EQ(refusal([](Batch& b) { b.page_indptr[3] = 2; }),
            "batch: page_indptr[3] falls from 3 to 2");
  EXPECT_EQ(refusal([](Batch& b) { b.page_indptr[3] = 5; }),
            "batch: page_indices has 4 entries instead of 5");
  EXPECT_EQ(refusal([](Batch& b) { b.page_indices.pop_back(); }),
            "batch: page_indices has 3 entries instead of 4");
  EXPECT_EQ(refusal([](Batch& b) { b.page_indices[1] = 10; }),
            "batch: page_indices[1] is 10, outside a pool of 10 pages");
  EXPECT_EQ(refusal([](Batch& b) { b.page_indices[3] = -1; }),
            "batch: page_indices[3] is -1, outside a pool of 10 pages");
}

TEST(ValidateBatch, NamesTailLengths) {
  EXPECT_EQ(refusal([](Batch& b) { b.last_page_len[0] = 17; }),
            "batch: last_page_len[0] is 17, not within 1..16 for 3 pages");
  EXPECT_EQ(refusal([](Batch& b) { b.last_page_len[2] = 0; }),
            "batch: last_page_len[2] is 0, not within 1..16 for 1 pages");
  EXPECT_EQ(refusal([](Batch& b) { b.last_page_len[1] = 1; }),
            "batch: last_page_len[1] is 1, not within 0..0 for 0 pages");
  EXPECT_EQ(refusal([](Batch& b) { b.last_page_len[2] = std::numeric_limits<int>::min(); }),
            "batch: last_page_len[2] is -2147483648, not within 1..16 for 1 pages");
}

TEST(ValidateBatch, NamesSequencesAndSparse) {
  EXPECT_EQ(refusal([](Batch& b) { b.sequences.pop_back(); }),
            "batch: sequences has 2 entries instead of 3");
  EXPECT_EQ(refusal([](Batch& b) { b.sparse.push_back(0); }),
            "batch: sparse has 4 entries instead of 3");
  EXPECT_EQ(refusal([](Batch& b) { b.sparse[2] = 2; }), "batch: sparse[2] is 2, not 0 or 1");
}

/// The rules of Batch's documentation, spelled out again without early exits.
bool consistent(const Batch& batch, const CacheShape& s) {
  const std::size_t n = batch.last_page_len.size();
  if (batch.q_indptr.size() != n + 1 || batch.page_indptr.size() != n + 1) return false;
  if (batch.sequences.size() != n || batch.sparse.size() != n) return false;
  if (batch.q_indptr[0] != 0 || batch.page_indptr[0] != 0) return false;
  bool ok = batch.page_indptr[n] == static_cast<std::int64_t>(batch.page_indices.size());
  for (std::size_t r = 0; r < n; ++r) {
    const std::int64_t rows = std::int64_t{batch.q_indptr[r + 1]} - batch.q_indptr[r];
    const std::int64_t pages = std::int64_t{batch.page_indptr[r + 1]} - batch.page_indptr[r];
    const std::int64_t tail = batch.last_page_len[r];
    ok = ok && rows >= 0 && pages >= 0 && batch.sparse[r] <= 1;
    ok = ok && (pages == 0 ? tail == 0 : tail >= 1 && tail <= s.page_size);
    ok = ok && rows <= (pages == 0 ? 0 : (pages - 1) * s.page_size + tail);
  }
  for (std::int32_t page : batch.page_indices) ok = ok && page >= 0 && page < s.num_pages;
  return ok;
}

template <typename T>
void damage(std::vector<T>& values) {
  const auto size = values.size();
  const int kind = *rc::gen::inRange(0, 3);
  if (kind == 0) {
    values.push_back(*rc::gen::cast<T>(rc::gen::inRange(-2, 60)));
  } else if (size > 0 && kind == 1) {
    values.erase(values.begin() +
                 static_cast<std::ptrdiff_t>(*rc::gen::inRange<std::size_t>(0, size)));
  } else if (size > 0) {
    values[*rc::gen::inRange<std::size_t>(0, size)] =
        *rc::gen::oneOf(rc::gen::cast<T>(rc::gen::inRange(-2, 60)), rc::gen::arbitrary<T>());
  }
}

RC_GTEST_PROP(ValidateBatchProperty, DamagedBatchesAreRefusedByFieldAndOthersAccepted, ()) {
  Batch batch = good_batch();
  const int damages = *rc::gen::inRange(0, 4);
  for (int i = 0; i < damages; ++i) {
    switch (*rc::gen::inRange(0, 6)) {
      case 0:
        damage(batch.q_indptr);
        break;
      case 1:
        damage(batch.page_indptr);
        break;
      case 2:
        damage(batch.page_indices);
        break;
      case 3:
        damage(batch.last_page_len);
        break;
      case 4:
        damage(batch.sequences);
        break;
      case 5:
        damage(batch.sparse);
        break;
    }
  }
  std::string message;
  try {
    validate(batch, shape());
  } catch (const InvalidArgument& error) {
    message = error.what();
  }
  const bool good = consistent(batch, shape());
  RC_CLASSIFY(good, "accepted");
  RC_ASSERT(message.empty() == good);
  bool named = good;
  for (const char* field :
       {"q_indptr", "page_indptr", "page_indices", "last_page_len", "sequences", "sparse"}) {
    named = named || message.find(field) != std::string::npos;
  }
  RC_ASSERT(named);
}

}  // namespace
}  // namespace quest
