// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
// The emulator itself: that it runs what is right, and that it finds what is wrong.
#include "cuda/emulator/grid.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "cuda/emulator/platform.h"
#include "quest/error.h"

namespace quest::emulator {
namespace {

/// The error of a launch of `threads` threads; empty if there was none.
template <class Body>
std::string error_of(unsigned threads, const Body& body) {
  try {
    run({"faulty", {1, 1, 1}, {threads, 1, 1}, 0}, body);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Emulator, EveryThreadOfEveryBlockRunsOnce) {
  std::vector<int> runs(3 * 2 * 64, 0);
  run({"count", {3, 2, 1}, {32, 2, 1}, 0}, [&] {
    const unsigned block = blockIdx.y * gridDim.x + blockIdx.x;
    ++runs[block * 64 + threadIdx.y * blockDim.x + threadIdx.x];
  });
  EXPECT_THAT(runs, testing::Each(1));
}

struct Numbers {
  int values[64];
};

TEST(Emulator, SharedMemory_IsOneForTheBlockAndOrderedByBarriers) {
  std::vector<int> sums(4 * 64, 0);
  run({"reverse", {4, 1, 1}, {64, 1, 1}, 0}, [&] {
    QUEST_SHARED(Numbers, shared);
    const unsigned t = threadIdx.x;
    for (int round = 0; round < 3; ++round) {
      shared.values[t] = static_cast<int>(t) + round;
      __syncthreads();
      sums[blockIdx.x * 64 + t] += shared.values[63 - t];
      __syncthreads();
    }
  });
  for (std::size_t i = 0; i < sums.size(); ++i) {
    EXPECT_EQ(sums[i], 3 * (63 - static_cast<int>(i % 64)) + 3) << i;
  }
}

TEST(Emulator, Shuffles_AndVotes) {
  std::vector<int> seen(64, 0);
  std::vector<std::uint32_t> votes(64, 0);
  run({"warp", {1, 1, 1}, {64, 1, 1}, 0}, [&] {
    const auto t = static_cast<int>(threadIdx.x);
    int sum = t;
    for (int mask = 16; mask > 0; mask /= 2) sum += __shfl_xor_sync(~0U, sum, mask);
    const int below = __shfl_up_sync(~0U, t, 1);
    const int first = __shfl_sync(~0U, t, 0);
    seen[threadIdx.x] = sum * 10000 + below * 100 + first;
    votes[threadIdx.x] = __ballot_sync(~0U, t % 3 == 0 ? 1 : 0);
  });
  EXPECT_EQ(seen[0], 496 * 10000 + 0);  // lane 0 has none below: its own value
  EXPECT_EQ(seen[5], 496 * 10000 + 4 * 100);
  EXPECT_EQ(seen[40], (496 + 32 * 32) * 10000 + 39 * 100 + 32);
  std::uint32_t expected = 0;
  for (unsigned lane = 0; lane < 32; ++lane) {
    if ((lane + 32) % 3 == 0) expected |= 1U << lane;
  }
  EXPECT_EQ(votes[63], expected);
}

TEST(Emulator, BarrierOr_JoinsThePredicates) {
  std::vector<int> results(96, -1);
  run({"or", {1, 1, 1}, {96, 1, 1}, 0}, [&] {
    const int none = __syncthreads_or(0);
    const int one = __syncthreads_or(threadIdx.x == 77 ? 1 : 0);
    const int after = __syncthreads_or(0);
    results[threadIdx.x] = none * 100 + one * 10 + after;
  });
  EXPECT_THAT(results, testing::Each(10));
}

TEST(Emulator, Barrier_ThreadsThatReturnedAreNotWaitedFor) {
  int passed = 0;
  run({"early", {1, 1, 1}, {64, 1, 1}, 0}, [&] {
    if (threadIdx.x >= 10) return;
    __syncthreads();
    ++passed;
  });
  EXPECT_EQ(passed, 10);
}

TEST(Emulator, Barrier_ThatSomeThreadsNeverReachNamesTheKernel) {
  const std::string error = error_of(32, [] {
    if (threadIdx.x < 10) {
      __syncthreads();
    } else {
      __shfl_sync(~0U, 1, 0);
    }
  });
  EXPECT_THAT(error, testing::HasSubstr("kernel 'faulty', block (0, 0, 0)"));
  EXPECT_THAT(error, testing::HasSubstr("10 of 32 live threads wait at a block barrier"));
  EXPECT_THAT(error, testing::HasSubstr("at a warp collective"));
}

TEST(Emulator, Barrier_InTwoBranchesIsAnError) {
  const std::string error = error_of(64, [] {
    if (threadIdx.x % 2 == 0) {
      __syncthreads();
    } else {
      __syncthreads();
    }
  });
  EXPECT_THAT(error, testing::HasSubstr("block barriers in two places"));
}

TEST(Emulator, Collective_LanesInTwoPlacesAreAnError) {
  const std::string error = error_of(32, [] {
    if (threadIdx.x < 16) {
      __shfl_sync(~0U, 1, 0);
    } else {
      __shfl_sync(~0U, 2, 0);
    }
  });
  EXPECT_THAT(error, testing::HasSubstr("lanes of one warp in two collectives"));
}

TEST(Emulator, Collective_LanesThatReturnedAreMissed) {
  const std::string error = error_of(32, [] {
    if (threadIdx.x == 31) return;
    __syncwarp();
  });
  EXPECT_THAT(error, testing::HasSubstr("lanes 7fffffff of ffffffff at a warp collective"));
}

TEST(Emulator, Collective_LaneOutsideItsMaskIsAnError) {
  EXPECT_THAT(error_of(32, [] { __syncwarp(0xFFFFU); }),
              testing::HasSubstr("a lane is not in its own mask"));
}

TEST(Emulator, ExceptionsOfAKernelPassThrough) {
  const auto faulty = [] {
    if (threadIdx.x == 3) throw InvalidArgument("three");
    __syncthreads();
  };
  EXPECT_THROW(run({"throws", {1, 1, 1}, {32, 1, 1}, 0}, faulty), InvalidArgument);
  // And the next launch is not disturbed.
  int runs = 0;
  run({"fine", {1, 1, 1}, {32, 1, 1}, 0}, [&] {
    __syncthreads();
    ++runs;
  });
  EXPECT_EQ(runs, 32);
}

/// How often a thread that reads its neighbour's value without a barrier gets the wrong one.
int wrong_reads(int distance) {
  int wrong = 0;
  run({"racy", {4, 1, 1}, {64, 1, 1}, 0}, [&] {
    QUEST_SHARED(Numbers, shared);
    const auto t = static_cast<int>(threadIdx.x);
    shared.values[t] = t;
    const int neighbour = (t + 64 + distance) % 64;
    if (shared.values[neighbour] != neighbour) ++wrong;
    __syncthreads();
    // A second phase, with the turns the other way round.
    shared.values[t] = 100 + t;
    if (shared.values[neighbour] != 100 + neighbour) ++wrong;
  });
  return wrong;
}

TEST(Emulator, MissingBarrier_ReadsStaleValuesWhicheverWayItLooks) {
  EXPECT_GT(wrong_reads(1), 100);
  EXPECT_GT(wrong_reads(-1), 100);
}

TEST(Emulator, Copies_ArriveWhenTheyAreWaitedFor) {
  alignas(16) const int from[3][4] = {{1, 1, 1, 1}, {2, 2, 2, 2}, {3, 3, 3, 3}};
  std::vector<int> seen;
  run({"copies", {1, 1, 1}, {1, 1, 1}, 0}, [&] {
    alignas(16) int to[3][4] = {};
    const auto look = [&] {
      for (const auto& piece : to) seen.push_back(piece[3]);
    };
    start_copy(to[0], from[0]);
    commit_copies();
    start_copy(to[1], from[1]);
    commit_copies();
    start_copy(to[2], from[2]);
    look();
    wait_for_copies(1);
    look();
    wait_for_copies(0);  // the last copy belongs to no batch yet
    look();
    commit_copies();
    wait_for_copies(0);
    look();
  });
  EXPECT_THAT(seen, testing::ElementsAre(-1, -1, -1, 1, -1, -1, 1, 2, -1, 1, 2, 3));
}

struct Floats {
  float values[32];
};

TEST(Emulator, SharedMemory_StartsAsNanInEveryBlock) {
  int nans = 0;
  run({"uninitialised", {3, 1, 1}, {32, 1, 1}, 32 * sizeof(float)}, [&] {
    QUEST_SHARED(Floats, fixed);
    QUEST_DYNAMIC_SHARED(Floats, dynamic);
    const unsigned t = threadIdx.x;
    if (fixed.values[t] != fixed.values[t]) ++nans;
    if (dynamic.values[t] != dynamic.values[t]) ++nans;
    fixed.values[t] = dynamic.values[t] = 1;  // must not reach the next block
  });
  EXPECT_EQ(nans, 3 * 64);
}

}  // namespace
}  // namespace quest::emulator
