// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "attention/attention_fixture.h"
#include "core/elements.h"
#include "quest/error.h"

namespace quest {
namespace {

using test::bare_policy;
using test::feed;
using test::run_layer;
using test::small_shape;
using test::StepResult;
using test::Tokens;
using Pages = std::vector<std::int32_t>;

/// Overwrites every slot of the sequence's tail page after its last token with NaN, K and V.
void poison_unused_slots(KvCache& cache, SequenceId sequence) {
  const CacheShape& shape = cache.shape();
  const PagedKv kv = cache.layer(0);
  const std::int32_t page = cache.pages(sequence).back();
  const std::int64_t used = (cache.length(sequence) - 1) % shape.page_size + 1;
  const float nan = std::nanf("");
  std::byte bytes[4];
  encode(shape.type, &nan, bytes, 1);
  const std::size_t size = size_of(shape.type);
  for (std::int64_t slot = used; slot < shape.page_size; ++slot) {
    for (std::int64_t j = 0; j < shape.head_dim; ++j) {
      std::memcpy(kv.k_page(page, 0) + (j * shape.page_size + slot) * size, bytes, size);
      std::memcpy(kv.v_page(page, 0) + (slot * shape.head_dim + j) * size, bytes, size);
    }
  }
}

TEST(Reference, SingleTokenReturnsItsValue) {
  KvCache cache(small_shape(2));
  auto backend = make_reference_backend(cache, bare_policy(8));
  Tokens tokens(cache.shape(), 2, 1);
  tokens.fill(1);
  const StepResult result = feed(*backend, cache, cache.create(), tokens, true);
  for (std::size_t j = 0; j < 64; ++j) {
    EXPECT_EQ(result.out[j], tokens.v[j]);
    EXPECT_EQ(result.out[64 + j], tokens.v[j]);
  }
  EXPECT_EQ(result.list(0), (Pages{0}));
}

TEST(Reference, TwoTokensWeighAsWorkedByHand) {
  // Logits 0.5 · (2 · 0) = 0 and 0.5 · (2 · ln 3) = ln 3: weights 1/4 and 3/4.
  KvCache cache(small_shape(2));
  auto backend = make_reference_backend(cache, bare_policy(8));
  Tokens tokens(cache.shape(), 1, 2);
  tokens.q[64] = 2;
  tokens.k[64] = std::log(3.0F);
  tokens.v[5] = 8;
  tokens.v[64 + 5] = 16;
  const StepResult result = feed(*backend, cache, cache.create(), tokens, false, 0.5F);
  EXPECT_EQ(result.out[5], 8) << "the first row sees itself only";
  EXPECT_NEAR(result.out[64 + 5], 14, 1e-6);
}

TEST(Reference, ZeroQueryGivesTheMeanOfTheValidValuesAtEveryTailLength) {
  for (std::int64_t length : {1, 7, 8, 9, 16, 17}) {
    KvCache cache(small_shape(4));
    auto backend = make_reference_backend(cache, bare_policy(32));
    const SequenceId sequence = cache.create();
    Tokens tokens(cache.shape(), 1, length);
    for (std::int64_t t = 0; t < length; ++t) tokens.v[t * 64] = static_cast<float>(t * t);
    const StepResult result = feed(*backend, cache, sequence, tokens, true);
    for (std::int64_t t = 0; t < length; ++t) {
      double mean = 0;
      for (std::int64_t i = 0; i <= t; ++i) mean += static_cast<double>(i * i);
      mean /= static_cast<double>(t + 1);
      EXPECT_NEAR(result.out[t * 64], mean, 1e-5) << "length " << length << ", row " << t;
    }
  }
}

TEST(Reference, UnusedSlotsOfTheTailPageAreNeverRead) {
  for (std::int64_t length : {1, 7, 8, 9, 15, 16, 17}) {
    for (KvType type : {KvType::kF32, KvType::kF16, KvType::kBF16}) {
      const auto last_row = [&](bool poison) {
        KvCache cache(small_shape(4, 8, 1, type));
        auto backend = make_reference_backend(cache, bare_policy(16));
        const SequenceId sequence = cache.create();
        Tokens tokens(cache.shape(), 3, length);
        tokens.fill(7);
        if (length > 1) feed(*backend, cache, sequence, tokens.slice(0, length - 1), false);
        cache.reserve(sequence, 1);
        if (poison) poison_unused_slots(cache, sequence);
        Batch batch;
        add_request(batch, cache, sequence, 1, true);
        return run_layer(*backend, cache.shape(), batch, tokens.slice(length - 1, 1)).out;
      };
      EXPECT_EQ(last_row(true), last_row(false)) << "length " << length << " " << name_of(type);
    }
  }
}

TEST(Reference, LogitsNearMinusAMillionKeepTheirWeights) {
  KvCache cache(small_shape(2));
  auto backend = make_reference_backend(cache, bare_policy(8));
  Tokens tokens(cache.shape(), 1, 2);
  for (std::int64_t t = 0; t < 2; ++t) {
    tokens.q[t * 64] = 1000;
    tokens.k[t * 64] = -1000;
  }
  tokens.k[64 + 1] = std::log(3.0F);
  tokens.q[64 + 1] = 1;
  tokens.v[0] = 8;
  tokens.v[64] = 16;
  const StepResult result = feed(*backend, cache, cache.create(), tokens, false);
  EXPECT_EQ(result.out[0], 8);
  EXPECT_NEAR(result.out[64], 14, 1e-5);
}

TEST(Reference, BudgetOfAllPagesEqualsDense) {
  // 27 tokens of pages of 8: 4 pages.
  Tokens tokens(small_shape(4), 2, 27);
  tokens.fill(3);
  for (GroupMode mode : {GroupMode::kPerHead, GroupMode::kGroupMax, GroupMode::kGroupMean,
                         GroupMode::kGroupSoftmax, GroupMode::kQuota}) {
    const auto run = [&](bool sparse) {
      KvCache cache(small_shape(4));
      auto backend = make_reference_backend(cache, bare_policy(32, mode));
      return feed(*backend, cache, cache.create(), tokens, sparse);
    };
    const StepResult sparse = run(true);
    const StepResult dense = run(false);
    EXPECT_EQ(sparse.out, dense.out) << name_of(mode);
    EXPECT_EQ(sparse.selection.pages, dense.selection.pages) << name_of(mode);
    EXPECT_EQ(sparse.selection.indptr, dense.selection.indptr) << name_of(mode);
  }
}

TEST(Reference, LeftOutPagesEqualAnExplicitMask) {
  // Keys point at page 1 and the query at it: budget 2 reads pages 1 and 3 (tail) of 4.
  KvCache cache(small_shape(4));
  auto backend = make_reference_backend(cache, bare_policy(16));
  const SequenceId sequence = cache.create();
  Tokens tokens(cache.shape(), 1, 26);
  for (std::int64_t t = 0; t < 26; ++t) {
    tokens.k[t * 64] = t / 8 == 1 ? 1.0F : -1.0F;
    tokens.v[t * 64] = static_cast<float>(t);
  }
  tokens.q[25 * 64] = 2;
  feed(*backend, cache, sequence, tokens.slice(0, 25), false);
  const StepResult result = feed(*backend, cache, sequence, tokens.slice(25, 1), true);
  EXPECT_EQ(result.list(0), (Pages{1, 3}));
  // Tokens 8 … 15 with logit 2; 24 and 25 with logit -2.
  const double high = std::exp(2.0);
  const double low = std::exp(-2.0);
  const double expected = (high * (8 + 15) * 4 + low * (24 + 25)) / (8 * high + 2 * low);
  EXPECT_NEAR(result.out[0], expected, 1e-5);
}

TEST(Reference, WorkedValue_TwoSteps) {
  // SPEC S3.2, row four, through the cache: A is page 0 and B page 1, each key repeated to fill
  // the page; the last page is the tail, which is read besides the one page that the scores win.
  KvCache cache(small_shape(4));
  auto backend = make_reference_backend(cache, bare_policy(16));
  const float a[3][2] = {{1, 0}, {3, -2}, {-1, 1}};
  const float b[3][2] = {{0, 2}, {1, 4}, {-2, 5}};
  const auto selected = [&](std::int64_t kinds_in_b, float q0, float q1) {
    const SequenceId sequence = cache.create();
    Tokens tokens(cache.shape(), 1, 17);
    for (std::int64_t t = 0; t < 8; ++t) {
      for (std::int64_t j = 0; j < 2; ++j) {
        tokens.k[t * 64 + j] = a[t % 3][j];
        tokens.k[(8 + t) * 64 + j] = b[t % kinds_in_b][j];
      }
    }
    tokens.q[16 * 64] = q0;
    tokens.q[16 * 64 + 1] = q1;
    feed(*backend, cache, sequence, tokens.slice(0, 16), false);
    const Pages pages = feed(*backend, cache, sequence, tokens.slice(16, 1), true).list(0);
    cache.release(sequence);
    return pages;
  };
  EXPECT_EQ(selected(2, 2, -1), (Pages{0, 2}));
  EXPECT_EQ(selected(3, 0, 1), (Pages{1, 2}));
}

TEST(Reference, SparseRowsTogetherEqualRowsOneByOne) {
  for (GroupMode mode : {GroupMode::kPerHead, GroupMode::kGroupMax, GroupMode::kGroupMean,
                         GroupMode::kGroupSoftmax, GroupMode::kQuota}) {
    SelectionPolicy policy = bare_policy(24, mode);
    policy.beta = 0.5F;
    policy.sinks = 1;
    Tokens tokens(small_shape(10, 8, 2), 3, 75);
    tokens.fill(11);
    KvCache cache(small_shape(24, 8, 2));
    auto backend = make_reference_backend(cache, policy);

    const SequenceId together = cache.create();
    feed(*backend, cache, together, tokens.slice(0, 62), false);
    const StepResult all = feed(*backend, cache, together, tokens.slice(62, 13), true);

    const SequenceId alone = cache.create();
    feed(*backend, cache, alone, tokens.slice(0, 62), false);
    for (std::int64_t row = 0; row < 13; ++row) {
      const StepResult one = feed(*backend, cache, alone, tokens.slice(62 + row, 1), true);
      for (std::int64_t head = 0; head < 2; ++head) {
        EXPECT_EQ(all.list(row * 2 + head), one.list(head))
            << name_of(mode) << " row " << row << " KV head " << head;
      }
      const auto first = all.out.begin() + row * tokens.q_stride;
      EXPECT_EQ(std::vector<float>(first, first + tokens.q_stride), one.out)
          << name_of(mode) << " row " << row;
    }
  }
}

TEST(Reference, RowsOfOneRequestChooseTheirOwnPages) {
  // Two rows in the same tail page; the first looks at page 0, the second at page 1.
  KvCache cache(small_shape(4));
  auto backend = make_reference_backend(cache, bare_policy(16));
  const SequenceId sequence = cache.create();
  Tokens tokens(cache.shape(), 1, 26);
  for (std::int64_t t = 0; t < 8; ++t) {
    tokens.k[t * 64] = 1;
    tokens.k[(8 + t) * 64 + 1] = 1;
  }
  tokens.q[24 * 64] = 1;
  tokens.q[25 * 64 + 1] = 1;
  feed(*backend, cache, sequence, tokens.slice(0, 24), false);
  const StepResult result = feed(*backend, cache, sequence, tokens.slice(24, 2), true);
  EXPECT_EQ(result.list(0), (Pages{0, 3}));
  EXPECT_EQ(result.list(1), (Pages{1, 3}));
}

TEST(Reference, TwoKvHeadsFindTheirOwnPages) {
  KvCache cache(small_shape(4, 8, 2));
  auto backend = make_reference_backend(cache, bare_policy(16));
  const SequenceId sequence = cache.create();
  Tokens tokens(cache.shape(), 2, 25);
  for (std::int64_t t = 0; t < 8; ++t) {
    tokens.k[t * 128] = 1;              // head 0, page 0
    tokens.k[(16 + t) * 128 + 64] = 1;  // head 1, page 2
  }
  for (std::int64_t h = 0; h < 4; ++h) tokens.q[24 * 256 + h * 64] = 1;
  feed(*backend, cache, sequence, tokens.slice(0, 24), false);
  const StepResult result = feed(*backend, cache, sequence, tokens.slice(24, 1), true);
  EXPECT_EQ(result.list(0), (Pages{0, 3}));
  EXPECT_EQ(result.list(1), (Pages{2, 3}));
}

TEST(Reference, DenseLayersAndTableReadEverything) {
  CacheShape shape = small_shape(4);
  shape.num_layers = 2;
  const auto pages_read = [&](const SelectionPolicy& policy) {
    KvCache cache(shape);
    auto backend = make_reference_backend(cache, policy);
    const SequenceId sequence = cache.create();
    Tokens tokens(shape, 1, 26);
    tokens.fill(2);
    cache.reserve(sequence, 26);
    Batch batch;
    add_request(batch, cache, sequence, 26, true);
    std::vector<std::size_t> counts;
    for (std::int32_t layer = 0; layer < 2; ++layer) {
      counts.push_back(run_layer(*backend, shape, batch, tokens, layer).list(25).size());
    }
    return counts;
  };
  SelectionPolicy policy = bare_policy(8);
  EXPECT_EQ(pages_read(policy), (std::vector<std::size_t>{1, 1}));
  policy.dense_layers = 1;
  EXPECT_EQ(pages_read(policy), (std::vector<std::size_t>{4, 1}));
  policy.budget_table = {16, SelectionPolicy::kDenseBudget};
  EXPECT_EQ(pages_read(policy), (std::vector<std::size_t>{2, 4}));
  policy.dense = true;
  EXPECT_EQ(pages_read(policy), (std::vector<std::size_t>{4, 4}));
}

TEST(Reference, RaggedBatchEqualsRequestsAlone) {
  // A dense prefill, a request without rows, a sparse decode row and an empty sequence together.
  const SelectionPolicy policy = bare_policy(16);
  Tokens first(small_shape(4), 2, 11);
  Tokens second(small_shape(4), 2, 30);
  first.fill(5);
  second.fill(6);

  KvCache cache(small_shape(16));
  auto backend = make_reference_backend(cache, policy);
  const SequenceId a = cache.create();
  const SequenceId b = cache.create();
  const SequenceId idle = cache.create();
  const SequenceId empty = cache.create();
  feed(*backend, cache, b, second.slice(0, 29), false);
  feed(*backend, cache, idle, first, false);
  cache.reserve(a, 11);
  cache.reserve(b, 1);
  Batch batch;
  add_request(batch, cache, a, 11, false);
  add_request(batch, cache, idle, 0, true);
  add_request(batch, cache, empty, 0, true);
  add_request(batch, cache, b, 1, true);
  Tokens both(cache.shape(), 2, 12);
  const auto join = [](const std::vector<float>& x, const std::vector<float>& y) {
    std::vector<float> joined = x;
    joined.insert(joined.end(), y.begin(), y.end());
    return joined;
  };
  const Tokens last = second.slice(29, 1);
  both.q = join(first.q, last.q);
  both.k = join(first.k, last.k);
  both.v = join(first.v, last.v);
  const StepResult result = run_layer(*backend, cache.shape(), batch, both);

  KvCache own(small_shape(16));
  auto alone = make_reference_backend(own, policy);
  const SequenceId c = own.create();
  const SequenceId d = own.create();
  feed(*alone, own, d, second.slice(0, 29), false);
  const StepResult prefill = feed(*alone, own, c, first, false);
  const StepResult decode = feed(*alone, own, d, last, true);
  EXPECT_EQ(result.out, join(prefill.out, decode.out));
  EXPECT_EQ(result.list(11), decode.list(0));
  EXPECT_EQ(result.selection.indptr.size(), 13U);
}

TEST(Reference, OrderOfFullPagesDoesNotMatter) {
  // Swapping two physical pages in the request permutes the keys that the row attends to.
  KvCache cache(small_shape(8));
  auto backend = make_reference_backend(cache, bare_policy(64));
  const SequenceId sequence = cache.create();
  Tokens tokens(cache.shape(), 2, 29);
  tokens.fill(9);
  feed(*backend, cache, sequence, tokens.slice(0, 28), false);
  cache.reserve(sequence, 1);
  Batch batch;
  add_request(batch, cache, sequence, 1, true);
  const StepResult straight = run_layer(*backend, cache.shape(), batch, tokens.slice(28, 1));
  std::swap(batch.page_indices[0], batch.page_indices[2]);
  const StepResult swapped = run_layer(*backend, cache.shape(), batch, tokens.slice(28, 1));
  for (std::size_t i = 0; i < straight.out.size(); ++i) {
    EXPECT_NEAR(straight.out[i], swapped.out[i], 1e-6);
  }
}

TEST(Reference, NaNInQueryOrKeyIsAnErrorOfTheStep) {
  for (bool in_query : {true, false}) {
    KvCache cache(small_shape(8));
    auto backend = make_reference_backend(cache, bare_policy(16));
    const SequenceId sequence = cache.create();
    Tokens tokens(cache.shape(), 2, 33);
    tokens.fill(4);
    if (in_query) {
      tokens.q[32 * 128 + 64] = std::nanf("");
    } else {
      tokens.k[9 * 64] = std::nanf("");
    }
    feed(*backend, cache, sequence, tokens.slice(0, 32), false);
    try {
      feed(*backend, cache, sequence, tokens.slice(32, 1), true);
      ADD_FAILURE() << "accepted";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("NaN page score in layer 0, KV head 0, row 0"),
                std::string::npos)
          << error.what();
    }
    // The next step starts clean.
    Tokens clean(cache.shape(), 2, 1);
    const SequenceId other = cache.create();
    EXPECT_NO_THROW(feed(*backend, cache, other, clean, true));
  }
}

TEST(Reference, BadArgumentsAreRefused) {
  KvCache cache(small_shape(2, 16));
  EXPECT_THROW(make_reference_backend(cache, bare_policy(8)), InvalidArgument);
  KvCache two_heads(small_shape(2, 16, 2));
  auto backend = make_reference_backend(two_heads, bare_policy(16));
  EXPECT_THROW(backend->begin_step(Batch{}, 3, 1), InvalidArgument);
}

TEST(Reference, OneMemberOfATeamWorksAndAllReturnTogether) {
  KvCache cache(small_shape(4));
  auto backend = make_reference_backend(cache, bare_policy(8));
  Tokens tokens(cache.shape(), 1, 20);
  tokens.fill(8);
  const SequenceId expected_sequence = cache.create();
  const StepResult expected = feed(*backend, cache, expected_sequence, tokens, false);
  cache.release(expected_sequence);

  const SequenceId sequence = cache.create();
  cache.reserve(sequence, 20);
  Batch batch;
  add_request(batch, cache, sequence, 20, false);
  std::vector<float> out(tokens.q.size());
  LayerInput input;
  input.num_q_heads = 1;
  input.q = tokens.q.data();
  input.k = tokens.k.data();
  input.v = tokens.v.data();
  input.q_stride = input.k_stride = input.v_stride = input.out_stride = 64;
  input.out = out.data();
  backend->begin_step(batch, 1, 3);
  Team team(3);
  std::vector<std::vector<float>> seen(3);
  const auto member = [&](int thread) {
    backend->forward(input, team, thread);
    seen[static_cast<std::size_t>(thread)] = out;
  };
  std::thread second(member, 1);
  std::thread third(member, 2);
  member(0);
  second.join();
  third.join();
  backend->end_step();
  for (const auto& copy : seen) EXPECT_EQ(copy, expected.out);
}

}  // namespace
}  // namespace quest
