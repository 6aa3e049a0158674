// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
// The CPU backend against the reference over a sampled grid of shapes, policies and batches.
#include <gtest/gtest.h>

#include "attention/cpu/amx.h"
#include "attention/grid_case.h"

namespace quest::test {
namespace {

void check(const GridCase& grid, Tally& tally) { check(grid, make_cpu_backend, tally); }

constexpr std::int32_t kPageSizes[] = {8, 16, 32, 64};
constexpr std::int32_t kHeadDims[] = {64, 80, 96, 128, 256};
constexpr std::int32_t kGroups[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 16};
constexpr int kThreads[] = {1, 2, 3, 8};
constexpr KvType kTypes[] = {KvType::kF32, KvType::kF16, KvType::kBF16, KvType::kQ8_0};
constexpr KvType kPlainTypes[] = {KvType::kF32, KvType::kF16, KvType::kBF16};
constexpr SummaryType kSummaries[] = {SummaryType::kPlain, SummaryType::kQ8, SummaryType::kQ4};
constexpr GroupMode kModes[] = {GroupMode::kPerHead, GroupMode::kGroupMax, GroupMode::kGroupMean,
                                GroupMode::kGroupSoftmax, GroupMode::kQuota};

/// Every page size, head size, type and tail length; dense and sparse single rows.
TEST(Grid, Decode_MatchesReferenceForEveryShapeAndTail) {
  std::mt19937 random(20240601);
  Tally tally;
  for (const std::int32_t page_size : kPageSizes) {
    for (const std::int32_t head_dim : kHeadDims) {
      for (const KvType type : kTypes) {
        for (const SummaryType summary : kSummaries) {
          GridCase grid;
          grid.group = pick(kGroups, random);
          grid.policy = policy_of(pick(kModes, random), 3 * page_size);
          grid.threads = pick(kThreads, random);
          grid.seed = static_cast<std::uint32_t>(random());
          take_every_tail(grid, {1, 2, head_dim, page_size, type, 0, summary}, random);
          check(grid, tally);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
  EXPECT_LE(tally.different * 200, tally.lists) << tally.different << " of " << tally.lists;
}

/// Every group size in every mode; integers make scores exact, so lists must be equal wherever
/// dividing by the group is exact too.
TEST(Grid, Selection_ListsAreEqualOnExactScores) {
  std::mt19937 random(7);
  for (const GroupMode mode : kModes) {
    if (mode == GroupMode::kGroupSoftmax) continue;
    for (const std::int32_t group : {1, 2, 4, 8}) {
      for (const KvType type : kPlainTypes) {
        Tally tally;
        GridCase grid;
        grid.group = group;
        const std::int32_t page_size = pick(kPageSizes, random);
        grid.policy = policy_of(mode, 6 * page_size);
        grid.policy.beta = group % 2 == 0 ? 1.0F : 0.5F;
        grid.threads = pick(kThreads, random);
        grid.values = Values::kIntegers;
        grid.seed = static_cast<std::uint32_t>(random());
        grid.requests = {{12 * page_size + 3, 1, true}, {20 * page_size - 1, 1, true}};
        grid.shape = {1, 3, 64, page_size, type, pages_needed(grid.requests, page_size)};
        check(grid, tally);
        if (HasFatalFailure()) return;
        EXPECT_EQ(tally.different, 0) << grid.describe();
      }
    }
  }
}

/// All five modes with odd groups, several steps and layers, a dense layer among them.
TEST(Grid, Sparse_SeveralLayersAndStepsMatchReference) {
  std::mt19937 random(99);
  Tally tally;
  for (const GroupMode mode : kModes) {
    for (const std::int32_t group : {3, 5, 7}) {
      GridCase grid;
      grid.group = group;
      grid.policy = policy_of(mode, 64);
      grid.policy.dense_layers = 1;
      grid.threads = pick(kThreads, random);
      grid.seed = static_cast<std::uint32_t>(random());
      grid.requests = {{150, 1, true}, {62, 1, true}, {300, 1, true}, {3, 1, false}};
      grid.steps = 3;
      grid.shape = {3, 2, 64, 16, KvType::kF16, pages_needed(grid.requests, 16, grid.steps)};
      check(grid, tally);
      if (HasFatalFailure()) return;
    }
  }
  EXPECT_LE(tally.different * 200, tally.lists) << tally.different << " of " << tally.lists;
}

GridCase certificate_case(const char* text, Values values, KvType type, int threads,
                          std::mt19937& random) {
  constexpr std::int32_t kWholeHeadDims[] = {64, 128, 256};  // see kFewChannels
  GridCase grid;
  grid.group = 1 + static_cast<std::int32_t>(random() % 4);
  const std::int32_t size = pick(kPageSizes, random);
  grid.policy = policy_of(GroupMode::kPerHead, 3 * size).with_certificate(*parse_certificate(text));
  grid.threads = threads;
  grid.values = values;
  grid.seed = static_cast<std::uint32_t>(random());
  grid.requests = {{25 * size + 3, 1, true},
                   {40 * size - 1, 1, true},
                   {11 * size, 5, true},
                   {3, 1, true},
                   {70, 1, false}};
  const auto kv_heads = 1 + static_cast<std::int32_t>(random() % 3);
  grid.shape = {2,
                kv_heads,
                pick(kWholeHeadDims, random),
                size,
                type,
                pages_needed(grid.requests, size),
                pick(kSummaries, random)};
  // Logits are so large that rounding the query to 16 bits, as for q8_0 keys, shows.
  if (type == KvType::kQ8_0) grid.tolerance = 2e-3;
  return grid;
}

/// The same lists as the reference, which knows no rounding margin. With few channels and plain
/// summaries all scores are exact, and no list of kTopR may differ.
TEST(Grid, Certificates_ListsMatchTheReference) {
  std::mt19937 random(31);
  Tally tally;
  CertificateCounters counters;
  for (const char* text : {"top-r=1", "top-r=16", "mass=0.1", "mass=0.01"}) {
    for (const Values values : {Values::kFewChannels, Values::kUniform}) {
      for (const KvType type : kTypes) {
        const GridCase grid = certificate_case(text, values, type, pick(kThreads, random), random);
        Tally mine;
        check(grid, mine);
        if (HasFatalFailure()) return;
        const bool exact = values == Values::kFewChannels && type != KvType::kQ8_0 &&
                           grid.shape.summary_type == SummaryType::kPlain &&
                           grid.policy.certificate.kind == CertificateKind::kTopR;
        EXPECT_LE(mine.different, exact ? 0 : mine.lists) << grid.describe();
        tally.lists += mine.lists;
        tally.different += mine.different;
        if (values != Values::kFewChannels) continue;
        Side side(grid.shape, grid.group, grid.policy, make_cpu_backend, grid.threads, values);
        for (const Request& request : grid.requests) side.add(request, 5);
        side.step(6);
        counters += side.backend->counters().certificates;
      }
    }
  }
  EXPECT_LE(tally.different * 200, tally.lists) << tally.different << " of " << tally.lists;
  EXPECT_LT(counters.fallbacks * 4, counters.lists * 3) << "too few lists left anything out";
}

/// With tile products, where the machine has them, and without.
class PrefillGrid : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    cpu::allow_amx(GetParam());
    if (GetParam() && !cpu::amx_usable()) GTEST_SKIP() << "this machine has no tile products";
  }
  void TearDown() override { cpu::allow_amx(true); }
};

INSTANTIATE_TEST_SUITE_P(Tiles, PrefillGrid, testing::Bool(),
                         [](const testing::TestParamInfo<bool>& tiles) {
                           return std::string(tiles.param ? "With" : "Without");
                         });

/// Dense rows in one chunk or many, over a history or none, with other requests beside them.
TEST_P(PrefillGrid, MatchesReferenceInAnyChunks) {
  std::mt19937 random(4);
  Tally tally;
  for (const std::int32_t page_size : kPageSizes) {
    for (const std::int32_t head_dim : kHeadDims) {
      GridCase grid;
      grid.group = pick(kGroups, random);
      grid.policy = policy_of(GroupMode::kGroupMean, 2 * page_size);
      grid.threads = pick(kThreads, random);
      grid.seed = static_cast<std::uint32_t>(random());
      grid.requests = {{0, 1 + static_cast<std::int32_t>(random() % 40), false},
                       {static_cast<std::int64_t>(random() % 70), 19, false},
                       {page_size * 3 + 1, 1, true},
                       {17, 2, false}};
      grid.steps = 3;
      grid.shape = {1,
                    static_cast<std::int32_t>(1 + random() % 3),
                    head_dim,
                    page_size,
                    pick(kTypes, random),
                    pages_needed(grid.requests, page_size, grid.steps),
                    pick(kSummaries, random)};
      check(grid, tally);
      if (HasFatalFailure()) return;
    }
  }
}

/// A chunk longer than one widened run of keys.
TEST_P(PrefillGrid, LongerThanOneRun) {
  for (const KvType type : {KvType::kF16, KvType::kQ8_0}) {
    for (const std::int32_t head_dim : {64, 256}) {
      Tally tally;
      GridCase grid;
      grid.group = 2;
      grid.threads = 2;
      grid.requests = {{250, 330, false}};
      grid.shape = {1, 1, head_dim, 16, type, pages_needed(grid.requests, 16)};
      check(grid, tally);
    }
  }
}

/// Several rows of one request, each selecting on its own (SPEC S5.5).
TEST(Grid, SparseRows_EachRowSelectsForItself) {
  std::mt19937 random(12);
  Tally tally;
  for (const GroupMode mode : kModes) {
    for (const int threads : kThreads) {
      GridCase grid;
      grid.group = pick(kGroups, random);
      grid.policy = policy_of(mode, 48);
      grid.threads = threads;
      grid.seed = static_cast<std::uint32_t>(random());
      grid.requests = {{200, 9, true}, {90, 2, true}, {20, 21, true}, {0, 3, true}};
      grid.shape = {2,
                    2,
                    64,
                    16,
                    threads % 2 == 0 ? KvType::kQ8_0 : KvType::kF16,
                    pages_needed(grid.requests, 16),
                    threads < 3 ? SummaryType::kPlain : SummaryType::kQ8};
      grid.policy.dense_layers = 1;
      check(grid, tally);
      if (HasFatalFailure()) return;
    }
  }
  EXPECT_LE(tally.different * 200, tally.lists) << tally.different << " of " << tally.lists;
}

/// Rows on both sides of the crossover in one step: the counters say which read everything.
TEST(Grid, Crossover_ShortRowsReadEverything) {
  for (const GroupMode mode : kModes) {
    Tally tally;
    GridCase grid;
    grid.group = 3;
    grid.policy = policy_of(mode, 64);
    grid.policy.crossover = 1.75F;  // 7 pages
    grid.threads = 2;
    grid.requests = {{111, 1, true}, {112, 1, true}, {100, 30, true}, {40, 1, true}};
    grid.shape = {1, 2, 64, 16, KvType::kF16, pages_needed(grid.requests, 16)};
    check(grid, tally);
    if (HasFatalFailure()) return;

    Side side(grid.shape, 3, grid.policy, make_cpu_backend, 2);
    for (const Request& request : grid.requests) side.add(request, 5);
    side.step(6);
    // Of the 30 rows those at positions 112 … 129 see more than 7 pages; unions of per-head picks
    // may hold every page of a short list.
    const AttentionCounters& counters = side.backend->counters();
    EXPECT_EQ(counters.sparse_lists + counters.dense_lists, 33 * 2);
    if (mode != GroupMode::kPerHead) {
      EXPECT_EQ(counters.sparse_lists, 2 * (1 + 18));
    }
  }
}

}  // namespace
}  // namespace quest::test
