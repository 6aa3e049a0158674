// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <hwy/highway.h>

#include <cstdint>
#include <random>
#include <vector>

#include "selection/group_selection.h"

namespace quest {
namespace {

/// Limits the dispatch to one instruction set, and lifts the limit at the end.
class OnlyTarget {
 public:
  explicit OnlyTarget(std::int64_t target) { set(target); }
  ~OnlyTarget() { set(0); }
  OnlyTarget(const OnlyTarget&) = delete;
  OnlyTarget& operator=(const OnlyTarget&) = delete;

 private:
  static void set(std::int64_t target) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
};

constexpr GroupMode kModes[] = {GroupMode::kPerHead, GroupMode::kGroupMax, GroupMode::kGroupMean,
                                GroupMode::kGroupSoftmax, GroupMode::kQuota};

/// The lists of many inputs, one after the other.
std::vector<std::int32_t> many_lists(GroupMode mode) {
  std::mt19937 random(1);
  std::vector<std::int32_t> all;
  SelectionScratch scratch;
  for (std::int32_t num_pages : {2, 3, 15, 16, 17, 63, 64, 65, 129, 1000}) {
    for (int round = 0; round < 20; ++round) {
      const int distinct = round % 2 == 0 ? 5 : 100000;  // many ties, few ties
      std::vector<float> scores(static_cast<std::size_t>(3 * num_pages));
      for (float& x : scores) x = static_cast<float>(static_cast<int>(random() % distinct) - 2);
      const auto budget = static_cast<std::int64_t>(1 + random() % (num_pages - 1));
      const auto forced = forced_pages(std::int64_t{num_pages} * 8, 8, 8, 16, budget);
      std::vector<std::int32_t> pages(
          static_cast<std::size_t>(max_selected_pages(mode, 3, budget, num_pages)));
      const PageScores input{scores.data(), num_pages, 3, 0.1F};
      const std::int32_t count = select_pages(mode, input, forced, budget, scratch, pages.data());
      EXPECT_GE(count, 1);
      all.insert(all.end(), pages.begin(), pages.begin() + count);
    }
  }
  return all;
}

TEST(Targets, EveryInstructionSetSelectsTheSamePages) {
  const std::vector<std::int64_t> targets = hwy::SupportedAndGeneratedTargets();
  ASSERT_FALSE(targets.empty());
  for (GroupMode mode : kModes) {
    const auto expected = many_lists(mode);
    for (std::int64_t target : targets) {
      const OnlyTarget only(target);
      EXPECT_EQ(many_lists(mode), expected) << name_of(mode) << " on " << hwy::TargetName(target);
    }
  }
}

}  // namespace
}  // namespace quest
