// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "quest/team.h"

#include <gtest/gtest.h>

#include <array>
#include <thread>
#include <vector>

namespace quest {
namespace {

// Plain memory on purpose: the barrier alone must order it, and ThreadSanitizer checks that.
// Marks alternate between two sets: nobody can write set p % 2 again before all have read it,
// because one more barrier lies between.
TEST(Team, NoPhaseIsLostForAnyTeamSize) {
  constexpr int kPhases = 10000;
  for (int size = 2; size <= 8; ++size) {
    Team team(size);
    std::array<std::array<int, 8>, 2> marks{};
    std::vector<int> stale(static_cast<std::size_t>(size), 0);
    std::vector<std::thread> threads;
    for (int member = 0; member < size; ++member) {
      threads.emplace_back([&, member] {
        int wrong = 0;
        for (int phase = 1; phase <= kPhases; ++phase) {
          auto& set = marks[phase % 2];
          set[member] = phase;
          team.wait();
          for (int other = 0; other < size; ++other) wrong += set[other] != phase;
        }
        stale[member] = wrong;
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (int member = 0; member < size; ++member) {
      EXPECT_EQ(stale[member], 0) << "member " << member << " of " << size;
      EXPECT_EQ(marks[kPhases % 2][member], kPhases);
    }
  }
}

TEST(Team, AloneNeverWaits) {
  Team team(1);
  for (int phase = 0; phase < 1000; ++phase) team.wait();
  EXPECT_EQ(team.size(), 1);
}

}  // namespace
}  // namespace quest
