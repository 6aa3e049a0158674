// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
// Values that hardly count are not read (SelectionPolicy::value_threshold).
#include <gtest/gtest.h>

#include <limits>

#include "attention/every_target.h"
#include "attention/grid_case.h"

namespace quest::test {
namespace {

constexpr KvType kTypes[] = {KvType::kF32, KvType::kF16, KvType::kBF16, KvType::kQ8_0};
constexpr std::int32_t kPageSizes[] = {8, 16, 32, 64};
constexpr std::int32_t kWholeHeadDims[] = {64, 128, 256};
constexpr GroupMode kModes[] = {GroupMode::kPerHead, GroupMode::kGroupMax, GroupMode::kGroupMean,
                                GroupMode::kGroupSoftmax, GroupMode::kQuota};

/// One query head, one KV head, pages of 8, head_dim 64: keys and query use channel 0 alone, and
/// value t is t + 1 in every channel. The last token is the row's own.
struct Line {
  Line(const SelectionPolicy& policy, Side::Make make, const std::vector<float>& logits)
      : side(CacheShape{1, 1, 64, 8, KvType::kF32, 8}, 1, policy, make) {
    const auto last = static_cast<std::int32_t>(logits.size()) - 1;
    const SequenceId id = side.cache.create();
    side.requests.push_back({last, 1, true});
    side.sequences.push_back(id);
    side.cache.reserve(id, last);
    std::vector<float> k(logits.size() * 64, 0.0F);
    std::vector<float> v;
    for (std::size_t t = 0; t < logits.size(); ++t) {
      k[t * 64] = logits[t] * 8;  // undone by the scale, 1 / √64
      v.insert(v.end(), 64, static_cast<float>(t + 1));
    }
    side.cache.append(0, 0, id, 0, last, k.data(), 64, v.data(), 64);
    side.cache.summarise(0, 0, id, 0, last);
    side.alter = [=](LayerData& data) {
      data.q.assign(64, 0.0F);
      data.q[0] = 1;
      data.k.assign(k.end() - 64, k.end());
      data.v.assign(v.end() - 64, v.end());
      data.point();
    };
    side.step(1);
  }

  float out() const { return side.outputs[0][17]; }
  std::int64_t values() const { return side.backend->counters().v_bytes / 256; }

  Side side;
};

SelectionPolicy two_pages(float threshold) {
  SelectionPolicy policy = policy_of(GroupMode::kPerHead, 16);
  policy.sinks = 0;
  policy.window = 0;
  policy.beta = 1;
  policy.value_threshold = threshold;
  return policy;
}

TEST(LightValues, HandValues) {
  // Three pages of 8 slots, the second is left out. On the list of 8 + 3 tokens weights are 2
  // (token 0), 1 (tokens 1 and 16) and 1/16 (the other eight): 4.5 in all, 0.409 in the mean.
  std::vector<float> logits(19, std::log(1.0F / 16));
  logits[0] = std::log(2.0F);
  logits[1] = logits[16] = 0;
  for (std::size_t t = 8; t < 16; ++t) logits[t] = -30;
  for (const Side::Make make : {&make_reference_backend, &make_cpu_backend}) {
    // Values 1, 2 and 17, and a sixteenth of 3 … 8, 18 and 19.
    const float all = (2 + 2 + 17 + (33 + 37) / 16.0F) / 4.5F;
    const Line whole(two_pages(0), make, logits);
    ASSERT_EQ(whole.side.selections[0].pages, (std::vector<std::int32_t>{0, 2}));
    EXPECT_NEAR(whole.out(), all, 1e-5);
    EXPECT_EQ(whole.values(), 16);  // whole pages
    // 1/16 is 0.153 of the mean.
    const Line kept(two_pages(0.15F), make, logits);
    EXPECT_NEAR(kept.out(), all, 1e-5);
    EXPECT_EQ(kept.values(), 11);  // the tail page's empty slots are not read
    const Line light(two_pages(0.16F), make, logits);
    EXPECT_NEAR(light.out(), (2 + 2 + 17) / 4.0F, 1e-5);
    EXPECT_EQ(light.values(), 3);
    EXPECT_EQ(light.side.backend->counters().k_bytes, 16 * 256);
    EXPECT_EQ(Line(two_pages(1), make, logits).values(), 3);
  }
}

TEST(LightValues, EqualWeightsAreAllRead) {
  for (const Side::Make make : {&make_reference_backend, &make_cpu_backend}) {
    EXPECT_EQ(Line(two_pages(0.999F), make, std::vector<float>(24, 0.5F)).values(), 16);
  }
}

/// No rounding may make every value light.
TEST(LightValues, TheGreatestWeightIsAlwaysRead) {
  std::mt19937 random(5);
  std::uniform_real_distribution<float> level(-40, 40);
  for (int i = 0; i < 300; ++i) {
    const std::vector<float> logits(17 + random() % 40, level(random));
    const Line line(two_pages(1), make_cpu_backend, logits);
    ASSERT_GT(line.values(), 0);
    ASSERT_TRUE(std::isfinite(line.out())) << logits[0] << " x " << logits.size();
  }
}

/// A row that reads everything reads all values too.
TEST(LightValues, ListsThatWereNotSelectedAreWhole) {
  std::vector<float> logits(16, -10.0F);
  logits[3] = 0;
  for (const Side::Make make : {&make_reference_backend, &make_cpu_backend}) {
    EXPECT_EQ(Line(two_pages(1), make, logits).values(), 16);
  }
}

/// A NaN logit must not vanish with the light values.
TEST(LightValues, NanLogitIsRead) {
  constexpr std::int32_t kTokens = 24;
  const CacheShape shape{1, 1, 64, 8, KvType::kF32, 3};
  std::vector<float> q(64, 0.0F);
  q[0] = 1;
  std::vector<float> k(kTokens * 64UL, 0.0F);
  const std::vector<float> v(kTokens * 64UL, 1.0F);
  k[0] = 100;  // page 0, channel 0, slot 0: every other value is light
  k[64 * 8 + 5] = std::numeric_limits<float>::quiet_NaN();  // page 1, slot 5
  const std::vector<std::int32_t> pages{0, 1, 2};
  std::vector<float> scratch(static_cast<std::size_t>(cpu::attend_scratch_floats(64)));
  std::vector<float> o(64);
  float max = 0;
  float sum = 0;
  cpu::AttendArgs part;
  part.pages = {reinterpret_cast<const std::byte*>(k.data()),
                reinterpret_cast<const std::byte*>(v.data()),
                shape.page_bytes(),
                pages.data(),
                shape.page_size,
                shape.head_dim};
  part.q = q.data();
  part.heads = 1;
  part.list = pages.data();
  part.count = 3;
  part.last_tokens = 8;
  part.o = o.data();
  part.max = &max;
  part.sum = &sum;
  part.scratch = scratch.data();
  std::vector<float> runs(cpu::kAttendLogitStride);
  float greatest = 0;
  float weights = 0;
  const cpu::Kernels kernels = cpu::kernels_for(shape);
  kernels.logits(part, {runs.data(), &greatest, &weights});
  EXPECT_TRUE(std::isnan(weights));
  const float cut = 0.5F;
  greatest = 100;
  std::int32_t tokens = 0;
  kernels.values({part, runs.data(), &greatest, &cut, &tokens});
  EXPECT_EQ(tokens, 2);
  EXPECT_TRUE(std::isnan(o[0]));
  EXPECT_TRUE(std::isnan(sum));
}

/// Weights far apart, or close to their mean.
GridCase light_case(GroupMode mode, KvType type, std::mt19937& random) {
  GridCase grid;
  const std::int32_t size = pick(kPageSizes, random);
  grid.group = 1 + static_cast<std::int32_t>(random() % 9);
  grid.policy = policy_of(mode, static_cast<std::int64_t>(3 + random() % 9) * size);
  constexpr float kThresholds[] = {0.02F, 0.1F, 0.5F, 1.0F};
  constexpr int kThreads[] = {1, 2, 3, 8};
  grid.values = random() % 4 == 0 ? Values::kUniform : Values::kFewChannels;
  grid.policy.value_threshold = grid.values == Values::kUniform ? 0.95F : pick(kThresholds, random);
  grid.threads = pick(kThreads, random);
  grid.seed = static_cast<std::uint32_t>(random());
  const std::int64_t page = size;
  grid.requests = {{25 * page + 3, 1, true}, {40 * page - 1, 1, true}, {3, 1, true}};
  if (random() % 2 == 0) grid.requests.push_back({11 * page, 5, true});
  if (random() % 2 == 0) grid.requests.push_back({70, 1, false});
  if (random() % 2 == 0) grid.policy.dense_layers = 1;
  grid.shape = {2,
                1 + static_cast<std::int32_t>(random() % 3),
                pick(kWholeHeadDims, random),
                size,
                type,
                pages_needed(grid.requests, size)};
  // The query is rounded to 16 bits for q8_0 keys, and so are weights at the threshold.
  if (type == KvType::kQ8_0) grid.tolerance = 2e-3;
  return grid;
}

TEST(LightValues, BackendMatchesReference) {
  std::mt19937 random(2026);
  Tally tally;
  for (const GroupMode mode : kModes) {
    for (const KvType type : kTypes) {
      for (int i = 0; i < 3; ++i) {
        check(light_case(mode, type, random), make_cpu_backend, tally);
        if (HasFatalFailure()) return;
      }
    }
  }
  EXPECT_LE(tally.different * 100, tally.lists) << tally.different << " of " << tally.lists;
}

class LightValuesTarget : public EveryTarget {};

INSTANTIATE_TEST_SUITE_P(LightValues, LightValuesTarget, testing::ValuesIn(runnable_targets()),
                         target_name);

TEST_P(LightValuesTarget, MatchesReference) {
  std::mt19937 random(7);
  Tally tally;
  for (const KvType type : kTypes) {
    for (int i = 0; i < 2; ++i) {
      check(light_case(GroupMode::kGroupMean, type, random), make_cpu_backend, tally);
      if (HasFatalFailure()) return;
    }
  }
  EXPECT_LE(tally.different * 20, tally.lists) << tally.different << " of " << tally.lists;
}

/// What is left out weighs less than the threshold, so the output moves by less than twice that
/// share of the greatest value; and enough is left out for this to say something.
TEST(LightValues, LeftOutShareIsBelowTheThreshold) {
  const Request request{1000, 1, true};
  const CacheShape shape{1, 2, 64, 16, KvType::kF32, pages_needed({request}, 16)};
  for (const float threshold : {0.02F, 0.05F, 0.3F}) {
    SelectionPolicy policy = policy_of(GroupMode::kGroupMean, 512);
    Side all(shape, 3, policy, make_cpu_backend, 2, Values::kFewChannels);
    policy.value_threshold = threshold;
    Side light(shape, 3, policy, make_cpu_backend, 2, Values::kFewChannels);
    for (Side* side : {&all, &light}) {
      side->alter = [](LayerData& data) {
        for (float& x : data.q) x *= 4;
      };
      side->add(request, 3);
      side->step(4);
    }
    ASSERT_EQ(all.selections[0].pages, light.selections[0].pages);
    for (std::size_t i = 0; i < all.outputs[0].size(); ++i) {
      ASSERT_LE(std::abs(all.outputs[0][i] - light.outputs[0][i]), 2 * threshold);
    }
    const AttentionCounters& counters = light.backend->counters();
    EXPECT_LT(counters.v_bytes, counters.k_bytes * 7 / 8) << threshold;
    EXPECT_GT(counters.v_bytes, 0);
  }
}

/// A team may be smaller than its step was planned for; its shares are larger then.
TEST(LightValues, TeamSmallerThanPlanned) {
  const Request request{8000, 1, true};
  const CacheShape shape{1, 3, 64, 8, KvType::kF32, pages_needed({request}, 8)};
  SelectionPolicy policy = policy_of(GroupMode::kGroupMean, 4096);
  policy.value_threshold = 0.1F;
  Side planned(shape, 1, policy, make_cpu_backend, 2);
  Side fewer(shape, 1, policy, make_cpu_backend, 2);
  for (Side* side : {&planned, &fewer}) side->add(request, 3);
  planned.step(4);
  Batch batch;
  fewer.cache.reserve(fewer.sequences[0], 1);
  add_request(batch, fewer.cache, fewer.sequences[0], 1, true);
  LayerData data(shape, 1, 0, 1, 4, Values::kUniform);
  fewer.backend->begin_step(batch, 3, 16);
  run_team(2, [&](Team& team, int thread) { fewer.backend->forward(data.input, team, thread); });
  fewer.backend->end_step();
  EXPECT_EQ(data.out, planned.outputs[0]);
}

/// Lists that one thread reads and lists that many share agree but for rounding.
TEST(LightValues, ThreadsAgree) {
  const std::vector<Request> requests{{900, 1, true}, {400, 1, true}, {60, 1, false}};
  const CacheShape shape{2, 3, 64, 8, KvType::kF16, pages_needed(requests, 8)};
  SelectionPolicy policy = policy_of(GroupMode::kGroupMean, 256);
  policy.value_threshold = 0.1F;
  std::vector<std::vector<float>> first;
  std::int64_t bytes = 0;
  for (const int threads : {1, 2, 3, 5, 16}) {
    Side side(shape, 4, policy, make_cpu_backend, threads, Values::kFewChannels);
    for (const Request& request : requests) side.add(request, 11);
    side.step(12);
    if (first.empty()) {
      first = side.outputs;
      bytes = side.backend->counters().v_bytes;
    }
    EXPECT_EQ(side.backend->counters().v_bytes, bytes) << threads;
    for (std::size_t layer = 0; layer < first.size(); ++layer) {
      for (std::size_t i = 0; i < first[layer].size(); i += 64) {
        EXPECT_LE(relative_error(side.outputs[layer].data() + i, first[layer].data() + i, 64), 2e-6)
            << threads << " threads, layer " << layer;
      }
    }
  }
}

}  // namespace
}  // namespace quest::test
