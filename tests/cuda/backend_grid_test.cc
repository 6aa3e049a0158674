// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
// The CUDA backend on an emulated device against the reference over a sampled grid.
#include <gtest/gtest.h>

#include "attention/cuda/arguments.h"
#include "attention/grid_case.h"
#include "cuda/emulated_backend.h"

namespace quest::test {
namespace {

constexpr std::int32_t kPageSizes[] = {8, 16, 32, 64};
constexpr std::int32_t kHeadDims[] = {64, 128, 256};
constexpr std::int32_t kGroups[] = {1, 2, 3, 4, 5, 6, 7, 8, 12, 16};
constexpr int kThreads[] = {1, 2};
constexpr KvType kTypes[] = {KvType::kF16, KvType::kBF16};
constexpr SummaryType kSummaries[] = {SummaryType::kPlain, SummaryType::kQ8, SummaryType::kQ4};
constexpr GroupMode kModes[] = {GroupMode::kPerHead, GroupMode::kGroupMax, GroupMode::kGroupMean,
                                GroupMode::kGroupSoftmax, GroupMode::kQuota};
constexpr Side::Make kMakes[] = {make_emulated, make_emulated_splitting};

/// Every page size, head size, type and tail length; dense and sparse single rows, a request's
/// first token, and a request without rows.
TEST(CudaGrid, Decode_MatchesReferenceForEveryShapeAndTail) {
  std::mt19937 random(20241130);
  Tally tally;
  for (const std::int32_t page_size : kPageSizes) {
    for (const std::int32_t head_dim : kHeadDims) {
      for (const KvType type : kTypes) {
        for (const SummaryType summary : kSummaries) {
          GridCase grid;
          grid.group = pick(kGroups, random);
          grid.policy = policy_of(pick(kModes, random), std::int64_t{3} * page_size);
          grid.threads = pick(kThreads, random);
          grid.seed = static_cast<std::uint32_t>(random());
          take_every_tail(grid, {1, 2, head_dim, page_size, type, 0, summary}, random);
          check(grid, pick(kMakes, random), tally);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
  EXPECT_LE(tally.different * 200, tally.lists) << tally.different << " of " << tally.lists;
}

/// Integers make scores exact, so lists must be equal, ties and all.
TEST(CudaGrid, Selection_ListsAreEqualOnExactScores) {
  std::mt19937 random(8);
  for (const GroupMode mode : kModes) {
    if (mode == GroupMode::kGroupSoftmax) continue;  // a softmax is never exact
    for (const std::int32_t group : {1, 2, 4, 8}) {
      Tally tally;
      GridCase grid;
      grid.group = group;
      const std::int32_t page_size = pick(kPageSizes, random);
      grid.policy = policy_of(mode, std::int64_t{6} * page_size);
      grid.policy.beta = group % 2 == 0 ? 1.0F : 0.5F;
      grid.values = Values::kIntegers;
      grid.seed = static_cast<std::uint32_t>(random());
      grid.requests = {{std::int64_t{12} * page_size + 3, 1, true},
                       {std::int64_t{20} * page_size - 1, 1, true}};
      grid.shape = {
          1, 2, 64, page_size, pick(kTypes, random), pages_needed(grid.requests, page_size)};
      check(grid, make_emulated, tally);
      if (HasFatalFailure()) return;
      EXPECT_EQ(tally.different, 0) << grid.describe();
    }
  }
}

/// All modes with odd groups, several steps and layers, a dense layer among them.
TEST(CudaGrid, Sparse_SeveralLayersAndStepsMatchReference) {
  std::mt19937 random(98);
  Tally tally;
  for (const GroupMode mode : kModes) {
    for (const std::int32_t group : {3, 5}) {
      GridCase grid;
      grid.group = group;
      grid.policy = policy_of(mode, 64);
      grid.policy.dense_layers = 1;
      grid.seed = static_cast<std::uint32_t>(random());
      grid.requests = {{150, 1, true}, {62, 1, true}, {300, 1, true}, {3, 1, false}};
      grid.steps = 3;
      grid.shape = {3,
                    2,
                    64,
                    16,
                    KvType::kF16,
                    pages_needed(grid.requests, 16, grid.steps),
                    pick(kSummaries, random)};
      check(grid, pick(kMakes, random), tally);
      if (HasFatalFailure()) return;
    }
  }
  EXPECT_LE(tally.different * 200, tally.lists) << tally.different << " of " << tally.lists;
}

/// Budgets that differ by layer and head, full attention among them.
TEST(CudaGrid, BudgetTable_EachHeadReadsItsOwn) {
  Tally tally;
  GridCase grid;
  grid.group = 2;
  grid.policy = policy_of(GroupMode::kGroupMean, 64);
  grid.policy.budget_table = {32, SelectionPolicy::kDenseBudget, 96, 48, 16, 400};
  grid.requests = {{200, 1, true}, {350, 2, true}, {90, 1, true}};
  grid.shape = {2, 3, 64, 16, KvType::kF16, pages_needed(grid.requests, 16)};
  for (const Side::Make make : kMakes) check(grid, make, tally);
  EXPECT_EQ(tally.different, 0);
}

/// Dense rows in one chunk or many, over a history or none, with other requests beside them.
TEST(CudaGrid, Prefill_MatchesReferenceInAnyChunks) {
  std::mt19937 random(5);
  Tally tally;
  for (const std::int32_t page_size : kPageSizes) {
    for (const std::int32_t head_dim : kHeadDims) {
      for (const KvType type : kTypes) {
        GridCase grid;
        grid.group = pick(kGroups, random);
        grid.policy = policy_of(GroupMode::kGroupMean, std::int64_t{2} * page_size);
        grid.seed = static_cast<std::uint32_t>(random());
        grid.requests = {{0, 1 + static_cast<std::int32_t>(random() % 30), false},
                         {static_cast<std::int64_t>(random() % 70), 19, false},
                         {std::int64_t{3} * page_size + 1, 1, true},
                         {17, 2, false}};
        grid.steps = 2;
        grid.shape = {1,
                      static_cast<std::int32_t>(1 + random() % 2),
                      head_dim,
                      page_size,
                      type,
                      pages_needed(grid.requests, page_size, grid.steps),
                      pick(kSummaries, random)};
        check(grid, pick(kMakes, random), tally);
        if (HasFatalFailure()) return;
      }
    }
  }
}

/// Every group packs its rows into tiles in another way; several tiles, the last of them not full.
TEST(CudaGrid, Prefill_TilesOfEveryGroupMatchReference) {
  std::mt19937 random(6);
  Tally tally;
  for (std::int32_t group = 1; group <= cuda::kMaxGroup; ++group) {
    const std::int32_t tile_rows = cuda::kTileHeads / group;
    GridCase grid;
    grid.group = group;
    grid.policy = policy_of(GroupMode::kGroupMean, 64);
    grid.seed = static_cast<std::uint32_t>(random());
    grid.requests = {{static_cast<std::int64_t>(random() % 50), 2 * tile_rows + 1, false},
                     {static_cast<std::int64_t>(random() % 100), tile_rows, false}};
    const std::int32_t page_size = pick(kPageSizes, random);
    grid.shape = {1,
                  1,
                  pick(kHeadDims, random),
                  page_size,
                  pick(kTypes, random),
                  pages_needed(grid.requests, page_size)};
    check(grid, make_emulated, tally);
    if (HasFatalFailure()) return;
  }
}

/// Decode with the groups that tensor cores serve, beside the largest that they do not.
TEST(CudaGrid, LargeGroups_MatchReference) {
  std::mt19937 random(14);
  Tally tally;
  for (std::int32_t group = cuda::kLeastLargeGroup - 1; group <= cuda::kMaxGroup; ++group) {
    for (const std::int32_t head_dim : kHeadDims) {
      GridCase grid;
      grid.group = group;
      const std::int32_t page_size = pick(kPageSizes, random);
      grid.policy = policy_of(pick(kModes, random), std::int64_t{3} * page_size);
      grid.seed = static_cast<std::uint32_t>(random());
      take_every_tail(grid, {1, 1, head_dim, page_size, pick(kTypes, random)}, random);
      check(grid, pick(kMakes, random), tally);
      if (HasFatalFailure()) return;
    }
  }
  EXPECT_LE(tally.different * 200, tally.lists) << tally.different << " of " << tally.lists;
}

/// More pages than a block holds the places of, and than a part of the score kernel has.
TEST(CudaGrid, LongRequest_TakesSeveralRunsAndParts) {
  for (const std::int32_t group : {2, 8}) {
    for (const Side::Make make : kMakes) {
      Tally tally;
      GridCase grid;
      grid.group = group;
      grid.policy = policy_of(GroupMode::kGroupMax, 640);
      grid.requests = {{1205, 1, true}, {1120, 1, false}, {560, 3, false}};
      grid.shape = {1, 1, 128, 8, KvType::kBF16, pages_needed(grid.requests, 8), SummaryType::kQ8};
      check(grid, make, tally);
      EXPECT_EQ(tally.different, 0);
    }
  }
}

/// Rows that several blocks select from, and a short one beside them.
TEST(CudaGrid, RowsOfThousandsOfPages_MatchReference) {
  for (const GroupMode mode : kModes) {
    Tally tally;
    GridCase grid;
    grid.group = 2;
    grid.policy = policy_of(mode, 512);
    grid.values = Values::kIntegers;
    grid.requests = {{49603, 1, true}, {800, 1, true}, {32800, 2, true}};
    grid.shape = {1, 1, 64, 8, KvType::kF16, pages_needed(grid.requests, 8)};
    check(grid, make_emulated, tally);
    EXPECT_EQ(tally.different, 0) << grid.describe();
  }
}

/// Several rows of one request, each selecting on its own (SPEC S5.5).
TEST(CudaGrid, SparseRows_EachRowSelectsForItself) {
  std::mt19937 random(13);
  Tally tally;
  for (const GroupMode mode : kModes) {
    for (const Side::Make make : kMakes) {
      GridCase grid;
      grid.group = pick(kGroups, random);
      grid.policy = policy_of(mode, 48);
      grid.policy.dense_layers = 1;
      grid.seed = static_cast<std::uint32_t>(random());
      grid.requests = {{200, 5, true}, {90, 2, true}, {20, 9, true}, {0, 3, true}};
      grid.shape = {
          2, 2, 64, 16, KvType::kF16, pages_needed(grid.requests, 16), pick(kSummaries, random)};
      check(grid, make, tally);
      if (HasFatalFailure()) return;
    }
  }
  EXPECT_LE(tally.different * 200, tally.lists) << tally.different << " of " << tally.lists;
}

/// Rows on both sides of the crossover in one step and one tile of the prefill kernel.
TEST(CudaGrid, Crossover_ShortRowsReadEverything) {
  for (const GroupMode mode : kModes) {
    Tally tally;
    GridCase grid;
    grid.group = 3;
    grid.policy = policy_of(mode, 64);
    grid.policy.crossover = 1.75F;  // 7 pages
    grid.requests = {{111, 1, true}, {112, 1, true}, {100, 30, true}, {40, 1, true}};
    grid.shape = {1, 2, 64, 16, KvType::kF16, pages_needed(grid.requests, 16)};
    for (const Side::Make make : kMakes) check(grid, make, tally);
    EXPECT_EQ(tally.different, 0) << grid.describe();
  }
}

}  // namespace
}  // namespace quest::test
