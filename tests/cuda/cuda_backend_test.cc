// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
// What must hold for the CUDA backend beyond equality with the reference on one grid.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <optional>

#include "attention/attention_fixture.h"
#include "attention/cpu_harness.h"
#include "cuda/emulated_backend.h"
#include "cuda/recording_device.h"
#include "quest/error.h"

namespace quest::test {
namespace {

constexpr SummaryType kSummaries[] = {SummaryType::kPlain, SummaryType::kQ8, SummaryType::kQ4};

SelectionPolicy policy_of(std::int64_t budget, GroupMode mode = GroupMode::kGroupMean) {
  SelectionPolicy policy;
  policy.budget = budget;
  policy.dense_layers = 0;
  policy.sinks = 0;
  policy.window = 0;
  policy.group_mode = mode;
  policy.beta = 0.5F;
  policy.crossover = 1;
  return policy;
}

/// The text of the error that `body` throws, which must be an `Expected`.
template <class Expected, class Body>
std::string error_of(const Body& body) {
  try {
    body();
  } catch (const Expected& error) {
    return error.what();
  }
  return "no error";
}

void expect_close(const std::vector<float>& got, const std::vector<float>& want, int at) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); i += 64) {
    ASSERT_LE(relative_error(got.data() + i, want.data() + i, 64), 2e-5)
        << "operation " << at << " at " << i;
  }
}

/// Two caches, one served by an emulated device and one by the reference, that live through the
/// same operations. Page ids are the same in both.
class Twins {
 public:
  explicit Twins(const CacheShape& shape, const SelectionPolicy& policy)
      : caches_{KvCache(shape), KvCache(shape)},
        backends_{make_emulated(caches_[0], policy), make_reference_backend(caches_[1], policy)} {}

  KvCache& cache(int i) { return caches_[i]; }

  template <class Operation>
  auto both(const Operation& operation) {
    operation(caches_[1]);
    return operation(caches_[0]);
  }

  /// Feeds tokens to a sequence of both and compares the outputs.
  void feed_both(SequenceId id, std::int32_t rows, bool sparse, std::uint32_t seed, int at) {
    Tokens tokens(caches_[0].shape(), 2, rows);
    tokens.fill(seed);
    const StepResult got = feed(*backends_[0], caches_[0], id, tokens, sparse, 0.125F);
    const StepResult want = feed(*backends_[1], caches_[1], id, tokens, sparse, 0.125F);
    ASSERT_EQ(got.selection.pages, want.selection.pages) << "operation " << at;
    expect_close(got.out, want.out, at);
  }

 private:
  KvCache caches_[2];
  std::unique_ptr<AttentionBackend> backends_[2];
};

/// Appends through the host, as a restored session would.
void store_on_host(KvCache& cache, SequenceId id, std::int64_t count, std::uint32_t seed) {
  const CacheShape& shape = cache.shape();
  Tokens tokens(shape, 1, count);
  tokens.fill(seed);
  const std::int64_t position = cache.length(id);
  cache.reserve(id, count);
  for (std::int32_t head = 0; head < shape.num_kv_heads; ++head) {
    const std::int64_t offset = std::int64_t{head} * shape.head_dim;
    cache.append(0, head, id, position, count, tokens.k.data() + offset, tokens.kv_stride,
                 tokens.v.data() + offset, tokens.kv_stride);
    cache.summarise(0, head, id, position, count);
  }
}

/// Random forks, prefixes, cuts, releases, host-side appends and steps in a small pool, so that
/// pages are recycled all the time: the pool on the device follows the cache (SPEC S7.1–S7.3,
/// S2.4).
TEST(CudaBackend, CacheLife_DevicePoolFollows) {
  for (const std::uint32_t seed : {1U, 2U, 3U}) {
    std::mt19937 random(seed);
    const SummaryType summary = kSummaries[seed % 3];
    Twins twins({1, 2, 64, 8, KvType::kF16, 40, summary}, policy_of(24));
    std::vector<SequenceId> live;
    const auto any = [&] { return random() % live.size(); };
    for (int i = 0; i < 120; ++i) {
      KvCache& cache = twins.cache(0);
      const auto draw = random() % 10;
      if (live.empty() || (draw == 0 && live.size() < 4)) {
        live.push_back(twins.both([](KvCache& c) { return c.create(); }));
      } else if (draw == 1 && live.size() < 4) {
        const SequenceId parent = live[any()];
        live.push_back(twins.both([&](KvCache& c) { return c.fork(parent); }));
      } else if (draw == 2 && live.size() < 4 && cache.free_pages() > 1) {
        const SequenceId parent = live[any()];
        const auto length = static_cast<std::int64_t>(random()) % (cache.length(parent) + 1);
        live.push_back(twins.both([&](KvCache& c) { return c.fork_prefix(parent, length); }));
      } else if (draw == 3 && cache.free_pages() > 1) {
        const SequenceId id = live[any()];
        const auto length = static_cast<std::int64_t>(random()) % (cache.length(id) + 1);
        twins.both([&](KvCache& c) { return c.truncate(id, length), 0; });
      } else if (draw == 4 || cache.free_pages() < 6) {
        const std::size_t which = any();
        const SequenceId id = live[which];
        twins.both([&](KvCache& c) { return c.release(id), 0; });
        live.erase(live.begin() + static_cast<std::ptrdiff_t>(which));
      } else if (draw == 5) {
        const SequenceId id = live[any()];
        const auto count = static_cast<std::int64_t>(1 + random() % 20);
        twins.both([&](KvCache& c) {
          return store_on_host(c, id, count, seed * 1000 + static_cast<std::uint32_t>(i)), 0;
        });
      } else {
        const bool one = random() % 2 == 0;
        const auto rows = one ? 1 : static_cast<std::int32_t>(1 + random() % 18);
        twins.feed_both(live[any()], rows, random() % 2 == 0, static_cast<std::uint32_t>(random()),
                        i);
        if (HasFatalFailure()) {
          ADD_FAILURE() << "seed " << seed;
          return;
        }
      }
    }
  }
}

TEST(CudaBackend, ForkedTail_IsCopiedBeforeItGrows) {
  Twins twins({1, 1, 64, 8, KvType::kBF16, 10, SummaryType::kPlain}, policy_of(16));
  const SequenceId parent = twins.both([](KvCache& c) { return c.create(); });
  twins.feed_both(parent, 29, false, 1, 0);
  const SequenceId branch = twins.both([&](KvCache& c) { return c.fork(parent); });
  twins.feed_both(branch, 1, true, 2, 1);
  twins.feed_both(parent, 1, true, 3, 2);
  twins.feed_both(branch, 4, true, 4, 3);
  twins.both([&](KvCache& c) { return c.truncate(parent, 27), 0; });
  twins.feed_both(parent, 6, true, 5, 4);
}

/// Poisoned recycled pages: lengths that are multiples of the page size leave no page too many.
TEST(CudaBackend, RecycledPages_StaleKeysStayOut) {
  Twins twins({1, 1, 64, 16, KvType::kF16, 6, SummaryType::kQ8}, policy_of(32));
  for (const std::int32_t length : {16, 32, 48, 64, 80, 15, 17}) {
    const SequenceId id = twins.both([](KvCache& c) { return c.create(); });
    twins.feed_both(id, length, false, static_cast<std::uint32_t>(length), length);
    twins.feed_both(id, 1, true, 7, length);
    twins.both([&](KvCache& c) { return c.release(id), 0; });
  }
}

TEST(CudaBackend, NanQuery_IsReportedAsTheReferenceDoes) {
  for (const GroupMode mode :
       {GroupMode::kGroupMean, GroupMode::kGroupSoftmax, GroupMode::kQuota}) {
    for (const auto make : {make_emulated, make_reference_backend}) {
      Side side({1, 2, 64, 8, KvType::kF16, 30}, 2, policy_of(32, mode), make);
      side.add({90, 1, true}, 1);
      side.add({100, 1, true}, 2);
      side.alter = [](LayerData& data) { data.q[256 + 130] = std::nanf(""); };
      EXPECT_EQ(error_of<Error>([&] { side.step(3); }),
                "NaN page score in layer 0, KV head 1, row 1: a query or a key is NaN; check the "
                "model file or keep this layer dense");
      // The next step is a new one.
      side.alter = nullptr;
      side.step(4);
      EXPECT_FALSE(std::isnan(side.outputs[0][0]));
    }
  }
}

TEST(CudaBackend, NanKey_IsReportedWhenItsPageIsScored) {
  for (const SummaryType summary : kSummaries) {
    Side side({1, 1, 64, 8, KvType::kF16, 30, summary}, 2, policy_of(32), make_emulated);
    side.add({90, 1, true}, 1);
    side.alter = [](LayerData& data) { data.k[5] = std::nanf(""); };
    EXPECT_THAT(error_of<Error>([&] { side.step(3); }), testing::HasSubstr("NaN page score"));
  }
}

TEST(CudaBackend, EqualScores_LowerPagesWin) {
  for (const GroupMode mode : {GroupMode::kGroupMean, GroupMode::kGroupMax, GroupMode::kPerHead,
                               GroupMode::kGroupSoftmax, GroupMode::kQuota}) {
    Side side({1, 1, 64, 8, KvType::kF16, 30}, 2, policy_of(32, mode), make_emulated);
    side.add({99, 1, true}, 1);
    side.alter = [](LayerData& data) { std::fill(data.q.begin(), data.q.end(), 0.0F); };
    side.step(3);
    EXPECT_THAT(side.selections[0].pages, testing::ElementsAre(0, 1, 2, 12));
  }
}

/// Logits near -1e6 and far apart: no finite stand-in for minus infinity (SPEC S5.2). The error of
/// a logit in the thousands is that of its weight: 1000 · 2^-18 with the two bf16 parts of a query,
/// 1000 · 2^-22 with those of f16.
TEST(CudaBackend, ExtremeLogits_MatchReference) {
  for (const KvType type : {KvType::kF16, KvType::kBF16}) {
    for (const std::int32_t group : {2, 8}) {
      for (const std::int32_t rows : {1, 9}) {
        for (const float factor : {1000.0F, -1000.0F}) {
          std::vector<float> outputs[2];
          for (const bool emulated : {true, false}) {
            Side side({1, 1, 64, 8, type, 30}, group, policy_of(64),
                      emulated ? make_emulated_splitting : make_reference_backend);
            side.add({100, rows, false}, 1);
            side.alter = [&](LayerData& data) {
              for (float& x : data.q) x = factor * (1 + x);
            };
            side.step(3);
            outputs[emulated ? 0 : 1] = side.outputs[0];
          }
          const double tolerance = type == KvType::kF16 ? 1e-3 : 4e-3;
          for (std::size_t i = 0; i < outputs[0].size(); i += 64) {
            EXPECT_LE(relative_error(outputs[0].data() + i, outputs[1].data() + i, 64), tolerance)
                << name_of(type) << " group " << group << " rows " << rows;
          }
        }
      }
    }
  }
}

/// Values near 1 under a long list of like weights: what tensor cores cut off sums must not add up.
TEST(CudaBackend, LongSums_DoNotDrift) {
  constexpr std::int64_t kTokens = 16000;
  std::vector<float> outputs[2];
  for (const bool emulated : {true, false}) {
    const Side::Make in_one_split = [](KvCache& cache, SelectionPolicy policy) {
      cuda::Tuning tuning;
      tuning.most_splits = 1;
      tuning.split_tokens = 1 << 20;
      return cuda::make_backend(cache, std::move(policy), emulator::make_device(), tuning);
    };
    Side side({1, 1, 64, 64, KvType::kF16, kTokens / 64 + 1}, 8, policy_of(64),
              emulated ? in_one_split : make_reference_backend);
    const SequenceId id = side.cache.create();
    side.cache.reserve(id, kTokens);
    const std::vector<float> k = random_values(kTokens * 64, 4, Values::kUniform);
    std::vector<float> v = random_values(kTokens * 64, 5, Values::kUniform);
    for (float& x : v) x = 1 + x / 8;
    side.cache.append(0, 0, id, 0, kTokens, k.data(), 64, v.data(), 64);
    side.cache.summarise(0, 0, id, 0, kTokens);
    side.sequences.push_back(id);
    side.requests.push_back({kTokens, 1, false});
    side.step(3);
    outputs[emulated ? 0 : 1] = side.outputs[0];
  }
  expect_close(outputs[0], outputs[1], 0);
}

/// Queries of any magnitude: the split of a query into two 16-bit parts neither overflows nor loses
/// bits.
TEST(CudaBackend, QueriesOfAnyMagnitude_KeepTheirPrecision) {
  for (const KvType type : {KvType::kF16, KvType::kBF16}) {
    for (const int exponent : {-100, -30, 0, 15, 60}) {
      std::vector<float> outputs[2];
      for (const bool emulated : {true, false}) {
        Side side({1, 1, 64, 8, type, 30}, 8, policy_of(64),
                  emulated ? make_emulated : make_reference_backend);
        side.add({100, 1, false}, 1);
        side.add({40, 9, false}, 2);
        side.alter = [&](LayerData& data) {
          for (float& x : data.q) x = std::ldexp(x, exponent);
          data.input.scale = std::ldexp(data.input.scale, -exponent);
        };
        side.step(3);
        outputs[emulated ? 0 : 1] = side.outputs[0];
      }
      expect_close(outputs[0], outputs[1], exponent);
    }
  }
}

/// A value that is infinite or NaN concerns the rows that see it, in its channel, and nothing else.
TEST(CudaBackend, NanQuery_StaysNanWhereItsPagesAreSplit) {
  for (const std::int32_t rows : {1, 5}) {
    for (const auto make : {make_emulated, make_emulated_splitting}) {
      Side side({1, 1, 64, 8, KvType::kF16, 60}, 3, policy_of(64), make);
      side.add({400, rows, false}, 1);
      side.alter = [](LayerData& data) { data.q[64 + 7] = std::nanf(""); };
      side.step(3);
      for (std::size_t i = 0; i < side.outputs[0].size(); ++i) {
        const bool altered = i / 64 == 1;  // query head 1 of the first row
        EXPECT_EQ(std::isnan(side.outputs[0][i]), altered) << rows << " rows, element " << i;
      }
    }
  }
}

TEST(CudaBackend, ValueThatIsNotFinite_StaysOutOfEarlierRows) {
  constexpr std::size_t kRows = 50;
  constexpr std::size_t kOdd = 30;  // within a tile, and a warp of it
  constexpr std::size_t kChannel = 37;
  for (const auto& [type, make] : {std::pair{KvType::kF16, &make_emulated},
                                   {KvType::kBF16, &make_emulated},
                                   {KvType::kF16, &make_emulated_splitting}}) {
    for (const float odd : {std::nanf(""), std::numeric_limits<float>::infinity(),
                            -std::numeric_limits<float>::infinity()}) {
      std::vector<float> outputs[2];
      for (const bool emulated : {true, false}) {
        Side side({1, 1, 64, 8, type, 30}, 3, policy_of(64),
                  emulated ? make : make_reference_backend);
        side.add({13, kRows, false}, 1);
        if (emulated) {
          side.alter = [&](LayerData& data) { data.v[kOdd * 64 + kChannel] = odd; };
        }
        side.step(3);
        outputs[emulated ? 0 : 1] = side.outputs[0];
      }
      for (std::size_t row = 0; row < kRows * 3; ++row) {
        float* const got = outputs[0].data() + row * 64;
        const float* const want = outputs[1].data() + row * 64;
        if (row / 3 >= kOdd) {
          EXPECT_FALSE(std::isfinite(got[kChannel])) << "row " << row / 3;
          EXPECT_TRUE(std::isnan(odd) || got[kChannel] == odd) << "row " << row / 3;
          got[kChannel] = want[kChannel];
        }
        EXPECT_LE(relative_error(got, want, 64), 2e-5) << "row " << row / 3;
      }
    }
  }
}

TEST(CudaBackend, Policy_ThatIsNotServedIsRefusedByName) {
  KvCache cache({1, 1, 64, 8, KvType::kF16, 4});
  const auto backend = make_emulated(cache, policy_of(32));
  const Certificate certificate{CertificateKind::kTopR, 4};
  EXPECT_THAT(error_of<InvalidArgument>(
                  [&] { backend->set_policy(policy_of(32).with_certificate(certificate)); }),
              testing::HasSubstr("certificate top-r=4"));
  SelectionPolicy light = policy_of(32);
  light.value_threshold = 0.1F;
  EXPECT_THAT(error_of<InvalidArgument>([&] { backend->set_policy(light); }),
              testing::HasSubstr("value_threshold"));
}

TEST(CudaBackend, Cache_ThatIsNotServedIsRefusedByName) {
  const auto refusal = [](const CacheShape& shape) {
    KvCache cache(shape);
    return error_of<InvalidArgument>([&] { make_emulated(cache, policy_of(64)); });
  };
  EXPECT_THAT(refusal({1, 1, 64, 8, KvType::kF32, 4}), testing::HasSubstr("type f32"));
  EXPECT_THAT(refusal({1, 1, 64, 8, KvType::kQ8_0, 4}), testing::HasSubstr("type q8_0"));
  EXPECT_THAT(refusal({1, 1, 80, 8, KvType::kF16, 4}), testing::HasSubstr("head_dim 80"));
  // No backend has other page sizes: the cache itself refuses them.
  EXPECT_THAT(error_of<InvalidArgument>([] {
                KvCache({1, 1, 64, 128, KvType::kF16, 4});
              }),
              testing::HasSubstr("page_size must be one of 8, 16, 32, 64, not 128"));

  KvCache used({1, 1, 64, 8, KvType::kF16, 4});
  used.reserve(used.create(), 1);
  EXPECT_THAT(error_of<InvalidArgument>([&] { make_emulated(used, policy_of(64)); }),
              testing::HasSubstr("holds tokens already"));

  KvCache taken({1, 1, 64, 8, KvType::kF16, 4});
  const auto first = make_emulated(taken, policy_of(64));
  EXPECT_THAT(error_of<InvalidArgument>([&] { make_emulated(taken, policy_of(64)); }),
              testing::HasSubstr("another backend"));
}

TEST(CudaBackend, Batch_ThatIsNotServedIsRefusedBeforeAnyLaunch) {
  KvCache cache({1, 1, 64, 8, KvType::kF16, cuda::kMaxScoredPages + 1});
  const auto backend = make_emulated(cache, policy_of(64));
  const SequenceId id = cache.create();
  cache.reserve(id, std::int64_t{cuda::kMaxScoredPages} * 8 + 1);
  Batch batch;
  add_request(batch, cache, id, 1, true);
  EXPECT_THAT(error_of<InvalidArgument>([&] { backend->begin_step(batch, 1, 1); }),
              testing::HasSubstr("65537 pages to choose from"));
  EXPECT_THAT(error_of<InvalidArgument>([&] { backend->begin_step(batch, 17, 1); }),
              testing::HasSubstr("17 query heads share a KV head"));
  Batch dense;
  add_request(dense, cache, id, 1, false);
  EXPECT_NO_THROW(backend->begin_step(dense, 1, 1));
}

TEST(CudaBackend, Memory_ThatDoesNotSufficeIsAnErrorWithBothNumbers) {
  const CacheShape shape{2, 1, 64, 8, KvType::kF16, 100};
  KvCache cache(shape);
  emulator::DeviceOptions options;
  options.memory = cuda::DevicePool::planned_bytes(shape) - 1;
  const std::string error = error_of<Error>(
      [&] { cuda::make_backend(cache, policy_of(64), emulator::make_device(options)); });
  const std::int64_t planned = cuda::DevicePool::planned_bytes(shape);
  EXPECT_EQ(error, "CUDA: the KV cache takes " + std::to_string(planned) +
                       " bytes of device memory, " + std::to_string(planned - 1) +
                       " are free; use a smaller context");
  // The cache is left as it was: another backend may take it.
  EXPECT_NO_THROW(make_emulated(cache, policy_of(64)));
}

/// The pool has room, but what a long step needs beside it has not. A short one still works.
TEST(CudaBackend, Memory_OfAStepIsMissedBeforeAnyLaunch) {
  const CacheShape shape{1, 1, 64, 8, KvType::kF16, 60};
  KvCache cache(shape);
  emulator::DeviceOptions options;
  options.memory = cuda::DevicePool::planned_bytes(shape) + 200000;
  auto owned = std::make_unique<RecordingDevice>(emulator::make_device(options));
  RecordingDevice& device = *owned;
  const auto backend = cuda::make_backend(cache, policy_of(64), std::move(owned));
  const SequenceId id = cache.create();
  Tokens few(shape, 4, 5);
  few.fill(1);
  const std::vector<float> want = feed(*backend, cache, id, few, true).out;

  const std::size_t launches = device.launches.size();
  cache.truncate(id, 0);
  cache.reserve(id, 400);
  Batch batch;
  add_request(batch, cache, id, 400, true);
  const std::string error = error_of<Error>([&] { backend->begin_step(batch, 4, 1); });
  EXPECT_THAT(error, testing::HasSubstr("bytes of device memory wanted"));
  EXPECT_THAT(error, testing::HasSubstr("free; use a smaller context"));
  EXPECT_EQ(device.launches.size(), launches);

  cache.truncate(id, 0);
  EXPECT_EQ(feed(*backend, cache, id, few, true).out, want);
}

TEST(CudaBackend, Repeats_AreBitIdentical) {
  const std::vector<Request> requests{{300, 1, true}, {200, 1, false}, {64, 9, false}};
  Side side({1, 2, 64, 16, KvType::kF16, pages_needed(requests, 16)}, 3, policy_of(64),
            make_emulated_splitting);
  for (const Request& request : requests) side.add(request, 31);
  Batch batch;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    side.cache.reserve(side.sequences[i], requests[i].rows);
    add_request(batch, side.cache, side.sequences[i], requests[i].rows, requests[i].sparse);
  }
  side.run(batch, 32);
  const auto pages = side.selections[0].pages;
  const auto output = side.outputs[0];
  for (int repeat = 0; repeat < 5; ++repeat) {
    side.run(batch, 32);
    EXPECT_EQ(side.selections[0].pages, pages);
    EXPECT_EQ(side.outputs[0], output);
  }
}

}  // namespace
}  // namespace quest::test
