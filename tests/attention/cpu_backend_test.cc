// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
// What must hold for the CPU backend beyond equality with the reference (see grid_test.cc).
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <numeric>

#include "attention/cpu/amx.h"
#include "attention/cpu_harness.h"
#include "core/elements.h"
#include "quest/error.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define QUEST_SANITIZED 1
#else
#define QUEST_SANITIZED 0
#endif

namespace quest::test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

SelectionPolicy sparse_policy(std::int64_t budget, GroupMode mode = GroupMode::kGroupMean) {
  SelectionPolicy policy;
  policy.budget = budget;
  policy.dense_layers = 0;
  policy.sinks = 16;
  policy.window = 32;
  policy.group_mode = mode;
  return policy;
}

CacheShape shape_for(const std::vector<Request>& requests, std::int32_t kv_heads = 2,
                     KvType type = KvType::kF16, std::int32_t page_size = 16, int steps = 1) {
  return {1, kv_heads, 64, page_size, type, pages_needed(requests, page_size, steps)};
}

void add_all(Side& side, const std::vector<Request>& requests, std::uint32_t seed) {
  for (std::size_t i = 0; i < requests.size(); ++i) {
    side.add(requests[i], seed + 1000 * static_cast<std::uint32_t>(i));
  }
}

void expect_close(const std::vector<float>& got, const std::vector<float>& want, double tolerance,
                  std::int32_t head_dim = 64) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); i += static_cast<std::size_t>(head_dim)) {
    ASSERT_LE(relative_error(got.data() + i, want.data() + i, head_dim), tolerance) << "at " << i;
  }
}

TEST(CpuBackend, BudgetOfAllPages_EqualsDense) {
  const std::vector<Request> sparse{{333, 1, true}, {15, 1, true}, {63, 4, true}};
  std::vector<Request> dense = sparse;
  for (Request& request : dense) request.sparse = false;
  for (const GroupMode mode : {GroupMode::kPerHead, GroupMode::kQuota}) {
    Side a(shape_for(sparse), 3, sparse_policy(336, mode), make_cpu_backend, 2);
    Side b(shape_for(dense), 3, sparse_policy(16, mode), make_cpu_backend, 3);
    add_all(a, sparse, 5);
    add_all(b, dense, 5);
    a.step(6);
    b.step(6);
    EXPECT_EQ(a.selections[0].pages, b.selections[0].pages);
    EXPECT_EQ(a.selections[0].indptr, b.selections[0].indptr);
    expect_close(a.outputs[0], b.outputs[0], 1e-5);
    EXPECT_EQ(a.backend->counters().summary_bytes, 0);
    EXPECT_EQ(a.backend->counters().sparse_lists, 0);
    EXPECT_EQ(a.backend->counters().bytes_read(), a.backend->counters().dense_bytes);
  }
}

TEST(CpuBackend, Counters_PaperExampleIsExact) {
  // SPEC S8: L = 65,536, S = 16, B = 4,096, d = 128, 16 bit, one head.
  const CacheShape shape{1, 1, 128, 16, KvType::kF16, 65536 / 16 + 1};
  Side side(shape, 1, sparse_policy(4096), make_cpu_backend, 2);
  side.add({65535, 1, true}, 1);
  side.step(2);
  const AttentionCounters& counters = side.backend->counters();
  EXPECT_EQ(counters.summary_bytes, 2 << 20);
  EXPECT_EQ(counters.k_bytes + counters.v_bytes, 2 << 20);
  EXPECT_EQ(counters.dense_bytes, 32 << 20);
  EXPECT_EQ(counters.pages_read, 256);
  EXPECT_EQ(counters.sparse_lists, 1);
}

TEST(CpuBackend, PageLists_AreAscendingDistinctAndHoldTheTail) {
  const std::vector<Request> requests{{400, 3, true}, {95, 1, true}};
  for (const GroupMode mode : {GroupMode::kPerHead, GroupMode::kGroupMax, GroupMode::kGroupMean,
                               GroupMode::kGroupSoftmax, GroupMode::kQuota}) {
    Side side(shape_for(requests), 4, sparse_policy(64, mode), make_cpu_backend, 3);
    add_all(side, requests, 3);
    side.step(4);
    const SelectedPages& lists = side.selections[0];
    const std::int64_t positions[] = {400, 401, 402, 95};
    for (std::size_t list = 0; list + 1 < lists.indptr.size(); ++list) {
      const auto begin = lists.pages.begin() + lists.indptr[list];
      const auto end = lists.pages.begin() + lists.indptr[list + 1];
      EXPECT_TRUE(std::adjacent_find(begin, end, std::greater_equal<>()) == end);
      ASSERT_NE(begin, end);
      EXPECT_EQ(*(end - 1), positions[list / 2] / 16);
    }
  }
}

/// A sequence over the whole pool in a shuffled order: only one page is free at any time.
SequenceId scrambled_sequence(KvCache& cache) {
  std::vector<SequenceId> owners;
  while (cache.free_pages() > 0) {
    owners.push_back(cache.create());
    cache.reserve(owners.back(), 1);
  }
  std::mt19937 random(17);
  std::shuffle(owners.begin(), owners.end(), random);
  const SequenceId id = cache.create();
  for (const SequenceId owner : owners) {
    cache.release(owner);
    cache.reserve(id, cache.shape().page_size);
  }
  return id;
}

TEST(CpuBackend, PhysicalOrder_DoesNotMatter) {
  constexpr std::int64_t kLength = 20 * 16;
  for (const bool sparse : {true, false}) {
    std::vector<float> outputs[2];
    std::vector<std::int32_t> lists[2];
    for (const bool scrambled : {false, true}) {
      const CacheShape shape{1, 2, 64, 16, KvType::kF16, 20};
      Side side(shape, 3, sparse_policy(96), make_cpu_backend, 2);
      if (scrambled) {
        side.sequences.push_back(scrambled_sequence(side.cache));
        const auto pages = side.cache.pages(side.sequences[0]);
        ASSERT_FALSE(std::is_sorted(pages.begin(), pages.end()));
      } else {
        side.sequences.push_back(side.cache.create());
        side.cache.reserve(side.sequences[0], kLength);
      }
      side.requests.push_back({0, 1, sparse});
      // All tokens but the last straight into the cache, the last one through the backend.
      const LayerData data(shape, 1, 0, kLength, 8, Values::kUniform);
      for (std::int32_t head = 0; head < 2; ++head) {
        side.cache.append(0, head, side.sequences[0], 0, kLength - 1, data.input.k + head * 64, 128,
                          data.input.v + head * 64, 128);
        side.cache.summarise(0, head, side.sequences[0], 0, kLength - 1);
      }
      Batch batch;
      add_request(batch, side.cache, side.sequences[0], 1, sparse);
      side.run(batch, 9);
      outputs[scrambled] = side.outputs[0];
      lists[scrambled] = side.selections[0].pages;
    }
    EXPECT_EQ(lists[0], lists[1]);
    EXPECT_EQ(outputs[0], outputs[1]);
  }
}

TEST(CpuBackend, Threads_NeverChangeTheSelection) {
  const std::vector<Request> requests{{700, 1, true}, {300, 1, true}, {90, 5, true}};
  for (const GroupMode mode :
       {GroupMode::kPerHead, GroupMode::kGroupMean, GroupMode::kGroupSoftmax}) {
    std::vector<std::int32_t> first;
    std::vector<float> output;
    for (int threads = 1; threads <= 8; ++threads) {
      Side side(shape_for(requests), 4, sparse_policy(96, mode), make_cpu_backend, threads);
      add_all(side, requests, 21);
      side.step(22);
      if (threads == 1) {
        first = side.selections[0].pages;
        output = side.outputs[0];
      }
      EXPECT_EQ(side.selections[0].pages, first) << threads << " threads";
      expect_close(side.outputs[0], output, 2e-5);
    }
  }
}

TEST(CpuBackend, Repeats_AreBitIdentical) {
  const std::vector<Request> requests{{700, 1, true}, {1000, 1, false}, {64, 9, false}};
  Side side(shape_for(requests), 3, sparse_policy(128), make_cpu_backend, 3);
  add_all(side, requests, 31);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    side.cache.reserve(side.sequences[i], requests[i].rows);
  }
  Batch batch;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    add_request(batch, side.cache, side.sequences[i], requests[i].rows, requests[i].sparse);
  }
  side.run(batch, 32);
  const auto pages = side.selections[0].pages;
  const auto output = side.outputs[0];
  for (int repeat = 0; repeat < 100; ++repeat) {
    side.run(batch, 32);
    ASSERT_EQ(side.selections[0].pages, pages) << "repeat " << repeat;
    ASSERT_EQ(side.outputs[0], output) << "repeat " << repeat;
  }
}

/// Fills the whole pool with one bit pattern: what is not a valid token must never matter.
void poison(KvCache& cache, std::uint16_t pattern) {
  const CacheShape& shape = cache.shape();
  for (std::int32_t layer = 0; layer < shape.num_layers; ++layer) {
    const PagedKv kv = cache.layer(layer);
    const std::int64_t bytes = shape.num_pages * shape.num_kv_heads * shape.page_bytes();
    auto* k = reinterpret_cast<std::uint16_t*>(kv.k);
    auto* v = reinterpret_cast<std::uint16_t*>(kv.v);
    std::fill(k, k + bytes / 2, pattern);
    std::fill(v, v + bytes / 2, pattern);
    auto* s = reinterpret_cast<std::uint16_t*>(kv.summaries);
    std::fill(s, s + shape.num_pages * shape.num_kv_heads * shape.summary_bytes() / 2, pattern);
  }
}

TEST(CpuBackend, PoisonedPool_NeverReachesTheOutput) {
  constexpr std::uint16_t kPatterns[] = {0x7C00, 0xFC00, 0x7E00, 0xFFFF};  // ±inf, NaN as f16
  for (const std::int32_t page_size : {8, 16, 64}) {
    std::vector<Request> requests;
    for (std::int64_t tail = 0; tail < page_size; tail += page_size == 64 ? 9 : 1) {
      requests.push_back({3 * page_size + tail, 1, tail % 2 == 0});
    }
    requests.push_back({page_size, 2 * page_size + 3, false});
    requests.push_back({page_size + 1, page_size, true});
    for (const KvType type : {KvType::kF16, KvType::kQ8_0}) {
      CacheShape shape = shape_for(requests, 1, type, page_size);
      if (type == KvType::kQ8_0) shape.summary_type = SummaryType::kQ8;
      Side clean(shape, 3, sparse_policy(2 * page_size), make_cpu_backend, 2);
      add_all(clean, requests, 41);
      clean.step(42);
      for (const std::uint16_t pattern : kPatterns) {
        Side poisoned(shape, 3, sparse_policy(2 * page_size), make_cpu_backend, 2);
        poison(poisoned.cache, pattern);
        add_all(poisoned, requests, 41);
        poisoned.step(42);
        EXPECT_EQ(poisoned.selections[0].pages, clean.selections[0].pages);
        EXPECT_EQ(poisoned.outputs[0], clean.outputs[0])
            << name_of(type) << ' ' << page_size << ' ' << pattern;
      }
    }
  }
}

TEST(CpuBackend, ZeroQuery_GivesTheMeanOfTheValidValues) {
  for (const std::int64_t length : {1, 15, 16, 17, 48, 300}) {
    const CacheShape shape{1, 1, 64, 16, KvType::kF32, length / 16 + 1};
    Side side(shape, 3, sparse_policy(16), make_cpu_backend, 2);
    poison(side.cache, 0xFFFF);
    side.add({0, static_cast<std::int32_t>(length), false}, 51);
    std::vector<double> mean(64, 0.0);
    side.alter = [&](LayerData& data) {
      std::fill(data.q.begin(), data.q.end(), 0.0F);
      for (std::int64_t t = 0; t < length; ++t) {
        for (std::int64_t j = 0; j < 64; ++j) {
          // Small integers: sums are exact.
          data.v[t * 64 + j] = static_cast<float>((t * 7 + j) % 16);
          mean[j] += data.v[t * 64 + j];
        }
      }
    };
    side.step(52);
    for (std::int64_t h = 0; h < 3; ++h) {
      for (std::int64_t j = 0; j < 64; ++j) {
        const float got = side.outputs[0][((length - 1) * 3 + h) * 64 + j];
        EXPECT_NEAR(got, mean[j] / static_cast<double>(length), 1e-6 * 16) << length << ' ' << j;
      }
    }
  }
}

TEST(CpuBackend, HugeLogits_KeepTheirSoftmax) {
  // Logits near ±1e6 whose differences are small integers, all exact in float: the digits that the
  // maximum takes away must be exactly those that the logits have.
  const CacheShape shape{1, 1, 64, 16, KvType::kF32, 30};
  for (const float size : {-1e6F, 1e6F}) {
    Side cpu(shape, 2, sparse_policy(32), make_cpu_backend, 3);
    Side reference(shape, 2, sparse_policy(32), make_reference_backend);
    for (Side* side : {&cpu, &reference}) {
      side->alter = [size](LayerData& data) {
        data.input.scale = 1;
        for (std::size_t i = 0; i < data.q.size(); ++i) data.q[i] = i % 64 == 0 ? 1.0F : 0.0F;
        for (std::size_t i = 0; i < data.k.size(); ++i) {
          data.k[i] = i % 64 == 0 ? size + static_cast<float>(i / 64 % 7) : 0.0F;
        }
      };
      side->add({0, 400, false}, 61);
      side->step(62);
    }
    expect_close(cpu.outputs[0], reference.outputs[0], 1e-5);
    for (Side* side : {&cpu, &reference}) {
      side->requests[0].rows = 1;  // its list is split over the threads
      side->step(63);
    }
    expect_close(cpu.outputs[0], reference.outputs[0], 1e-5);
  }
}

TEST(CpuBackend, LogitsOfMinusInfinity_GiveZerosNotNaN) {
  const CacheShape shape{1, 1, 64, 16, KvType::kF32, 8};
  Side side(shape, 1, sparse_policy(16), make_cpu_backend, 1);
  side.add({0, 20, false}, 71);
  side.alter = [](LayerData& data) {
    for (std::size_t i = 0; i < data.q.size(); ++i) data.q[i] = 1e20F;
    for (std::size_t i = 0; i < data.k.size(); ++i) data.k[i] = i < 10 * 64 ? -1e20F : 0.0F;
  };
  side.step(72);
  for (std::size_t i = 0; i < 10 * 64; ++i) EXPECT_EQ(side.outputs[0][i], 0.0F);
  for (std::size_t i = 10 * 64; i < 20 * 64; ++i) EXPECT_TRUE(std::isfinite(side.outputs[0][i]));
}

TEST(CpuBackend, FutureValues_DoNotLeakIntoEarlierRows) {
  const CacheShape shape{1, 1, 64, 16, KvType::kF32, 8};
  const auto earlier_rows = [&](float last_k, float last_v) {
    Side side(shape, 3, sparse_policy(16), make_cpu_backend, 1);
    side.add({5, 40, false}, 73);
    side.alter = [=](LayerData& data) {
      std::fill(data.v.end() - 64, data.v.end(), last_v);
      std::fill(data.k.end() - 64, data.k.end(), last_k);
    };
    side.step(74);
    side.outputs[0].resize(39 * 3 * 64);
    return side.outputs[0];
  };
  const std::vector<float> outputs = earlier_rows(1.0F, 1.0F);
  EXPECT_EQ(earlier_rows(-3.0F, 1e6F), outputs);
  // Another kernel may take over where numbers are not finite.
  for (const bool tiles : {true, false}) {
    cpu::allow_amx(tiles);
    expect_close(earlier_rows(std::nanf(""), kInfinity), outputs, 2.5e-5);
  }
  cpu::allow_amx(true);
}

TEST(CpuBackend, NanInQuery_IsReportedWithItsLayer) {
  const CacheShape shape{3, 2, 64, 16, KvType::kF16, 40};
  for (const std::int32_t rows : {1, 6}) {
    Side side(shape, 3, sparse_policy(64), make_cpu_backend, 2);
    side.add({200, rows, true}, 81);
    side.alter = [](LayerData& data) {
      if (data.input.layer == 1) data.q[3 * 64 + 7] = std::nanf("");
    };
    try {
      side.step(82);
      FAIL() << "no error";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("layer 1, KV head 1, row 0"), std::string::npos)
          << error.what();
    }
    side.alter = nullptr;
    EXPECT_NO_THROW(side.step(83)) << "the report belongs to one step";
  }
}

TEST(CpuBackend, NanInTheNewKey_IsReported) {
  const CacheShape shape{1, 1, 64, 16, KvType::kF16, 20};
  Side side(shape, 1, sparse_policy(32), make_cpu_backend, 2);
  side.add({200, 1, true}, 84);
  side.alter = [](LayerData& data) { data.k[5] = std::nanf(""); };
  EXPECT_THROW(side.step(85), Error);
}

TEST(CpuBackend, ManyThreadsFewHeads) {
  const std::vector<Request> requests{
      {900, 1, true}, {333, 1, false}, {10, 40, false}, {0, 1, true}};
  const CacheShape shape = shape_for(requests);
  Side cpu(shape, 2, sparse_policy(256), make_cpu_backend, 64);
  Side reference(shape, 2, sparse_policy(256), make_reference_backend);
  add_all(cpu, requests, 91);
  add_all(reference, requests, 91);
  cpu.step(92);
  reference.step(92);
  EXPECT_EQ(cpu.selections[0].pages, reference.selections[0].pages);
  expect_close(cpu.outputs[0], reference.outputs[0], 2e-5);
}

TEST(CpuBackend, EmptyBatchAndEmptyRequests) {
  const CacheShape shape{1, 1, 64, 16, KvType::kF16, 8};
  Side side(shape, 1, sparse_policy(16), make_cpu_backend, 2);
  side.run(Batch{}, 1);
  EXPECT_TRUE(side.outputs[0].empty());
  side.add({0, 0, true}, 2);
  side.add({20, 0, true}, 3);
  side.step(4);
  EXPECT_EQ(side.backend->counters().pages_read, 0);
}

TEST(CpuBackend, Summaries_FollowEveryRouteOfAppending) {
  // One token at a time through the backend, in one chunk, and written beforehand: the next step
  // must select the same pages bit for bit.
  constexpr std::int32_t kLength = 150;
  const CacheShape shape{1, 2, 64, 16, KvType::kF16, 12};
  const LayerData all(shape, 3, 0, kLength + 1, 95, Values::kUniform);
  const auto rows = [&](std::int32_t first) {
    return [&all, first](LayerData& data) {
      const auto copy = [&](std::vector<float>& to, const std::vector<float>& from,
                            std::int64_t stride) {
        std::copy_n(from.begin() + first * stride, to.size(), to.begin());
      };
      copy(data.q, all.q, all.input.q_stride);
      copy(data.k, all.k, all.input.k_stride);
      copy(data.v, all.v, all.input.v_stride);
    };
  };
  std::vector<SelectedPages> lists;
  std::vector<std::vector<float>> outputs;
  for (const std::int32_t chunk : {1, 7, kLength}) {
    Side side(shape, 3, sparse_policy(64), make_cpu_backend, 2);
    side.add({0, chunk, false}, 1);
    std::int32_t done = 0;
    while (done < kLength) {
      side.requests[0].rows = std::min(chunk, kLength - done);
      side.alter = rows(done);
      side.step(1);
      done += side.requests[0].rows;
    }
    side.requests[0] = {0, 1, true};
    side.alter = rows(kLength);
    side.step(1);
    lists.push_back(side.selections[0]);
    outputs.push_back(side.outputs[0]);
  }
  for (std::size_t i = 1; i < lists.size(); ++i) {
    EXPECT_EQ(lists[i].pages, lists[0].pages);
    EXPECT_EQ(outputs[i], outputs[0]);
  }
}

TEST(CpuBackend, BeginStep_RefusesTokensItMayNotWrite) {
  const CacheShape shape{1, 1, 64, 16, KvType::kF16, 8};
  Side side(shape, 1, sparse_policy(16), make_cpu_backend, 1);
  side.add({20, 1, true}, 1);
  KvCache& cache = side.cache;
  cache.reserve(side.sequences[0], 1);
  Batch batch;
  add_request(batch, cache, side.sequences[0], 1, true);
  EXPECT_NO_THROW(side.backend->begin_step(batch, 1, 1));
  EXPECT_THROW(side.backend->begin_step(batch, 0, 1), InvalidArgument);
  EXPECT_THROW(side.backend->begin_step(batch, 1, 0), InvalidArgument);

  Batch other = batch;
  other.sequences[0] = 99;
  EXPECT_THROW(side.backend->begin_step(other, 1, 1), InvalidArgument);
  other = batch;
  other.last_page_len[0] += 1;
  EXPECT_THROW(side.backend->begin_step(other, 1, 1), InvalidArgument);
  other = batch;
  std::swap(other.page_indices[0], other.page_indices[1]);
  EXPECT_THROW(side.backend->begin_step(other, 1, 1), InvalidArgument);
  const SequenceId fork = cache.fork(side.sequences[0]);
  EXPECT_THROW(side.backend->begin_step(batch, 1, 1), InvalidArgument) << "shared tail page";
  cache.release(fork);
  EXPECT_NO_THROW(side.backend->begin_step(batch, 1, 1));
}

TEST(CpuBackend, PagesBeyond32BitOffsets) {
  if (QUEST_SANITIZED) GTEST_SKIP() << "the sanitizer's shadow of a 20 GB mapping is too large";
  // 300,000 pages of 16,384 elements: the last ones lie past 2^32 elements.
  const CacheShape big{1, 1, 256, 64, KvType::kF16, 300000};
  std::unique_ptr<Side> side;
  try {
    side = std::make_unique<Side>(big, 2, sparse_policy(128), make_cpu_backend, 2);
  } catch (const Error& error) {
    GTEST_SKIP() << error.what();
  }
  const SequenceId filler = side->cache.create();
  side->cache.reserve(filler, (big.num_pages - 10) * big.page_size);
  const CacheShape small{1, 1, 256, 64, KvType::kF16, 10};
  Side want(small, 2, sparse_policy(128), make_cpu_backend, 2);
  for (Side* s : {side.get(), &want}) {
    s->add({500, 1, true}, 101);
    s->step(102);
  }
  EXPECT_GE(side->cache.pages(side->sequences[0])[0], big.num_pages - 10);
  EXPECT_EQ(side->selections[0].pages, want.selections[0].pages);
  EXPECT_EQ(side->outputs[0], want.outputs[0]);
}

}  // namespace
}  // namespace quest::test
