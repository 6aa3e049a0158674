// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "selection/group_selection.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <set>
#include <vector>

#include "attention/reference/reference_selection.h"

namespace quest {
namespace {

using Pages = std::vector<std::int32_t>;
using HeadScores = std::vector<std::vector<float>>;  // [group][P]

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr GroupMode kModes[] = {GroupMode::kPerHead, GroupMode::kGroupMax, GroupMode::kGroupMean,
                                GroupMode::kGroupSoftmax, GroupMode::kQuota};

struct Choice {
  std::int32_t sinks = 0;   // in tokens, pages of 8
  std::int32_t window = 0;  // in tokens
  std::int64_t budget = 1;  // in pages
  float scale = 1;
};

ForcedPages forced_of(const Choice& choice, std::size_t num_pages) {
  return forced_pages(static_cast<std::int64_t>(num_pages) * 8, 8, choice.sinks, choice.window,
                      choice.budget);
}

/// The rows as `select_pages` wants them: the mean for kGroupMean, else one a head. A stride beyond
/// P and poison between the rows show that nothing past the last page is read.
struct Rows {
  Rows(GroupMode mode, const HeadScores& heads, float scale) {
    const std::size_t num_pages = heads[0].size();
    const std::size_t stride = num_pages + 3;
    const auto count =
        static_cast<std::size_t>(num_score_rows(mode, static_cast<std::int32_t>(heads.size())));
    values.assign(count * stride, kInfinity);
    for (std::size_t p = 0; p < num_pages; ++p) {
      if (mode == GroupMode::kGroupMean) {
        float sum = 0;
        for (const auto& head : heads) sum += head[p];
        values[p] = sum / static_cast<float>(heads.size());
      } else {
        for (std::size_t h = 0; h < count; ++h) values[h * stride + p] = heads[h][p];
      }
    }
    scores = {values.data(), static_cast<std::int64_t>(stride),
              static_cast<std::int32_t>(heads.size()), scale};
  }
  std::vector<float> values;
  PageScores scores;
};

/// Selected pages; empty if a NaN was reported. Fails if the output is written past its size.
Pages select(GroupMode mode, const HeadScores& heads, const Choice& choice) {
  const Rows rows(mode, heads, choice.scale);
  const auto num_pages = static_cast<std::int32_t>(heads[0].size());
  const std::int32_t room = max_selected_pages(mode, rows.scores.group, choice.budget, num_pages);
  constexpr std::int32_t kGuard = -77;
  Pages pages(static_cast<std::size_t>(room) + 1, kGuard);
  SelectionScratch scratch;
  const std::int32_t count = select_pages(mode, rows.scores, forced_of(choice, heads[0].size()),
                                          choice.budget, scratch, pages.data());
  EXPECT_EQ(pages[static_cast<std::size_t>(room)], kGuard) << "written past the promised size";
  EXPECT_LE(count, room);
  pages.resize(static_cast<std::size_t>(std::max(count, 0)));
  return pages;
}

// Hand-worked choices. Six pages, budget 3, tail page 5 forced: two are free.

const HeadScores kTwoHeads{{9, 8, 0, 0, 7, 0}, {0, 1, 6, 5, 0, 0}};

TEST(GroupSelection, PerHead_UnionOfTwoBestOfEachHead) {
  EXPECT_EQ(select(GroupMode::kPerHead, kTwoHeads, {.budget = 3}), (Pages{0, 1, 2, 3, 5}));
}

TEST(GroupSelection, GroupMax_BestSingleScores) {
  EXPECT_EQ(select(GroupMode::kGroupMax, kTwoHeads, {.budget = 3}), (Pages{0, 1, 5}));
}

TEST(GroupSelection, GroupMean_BestSums) {
  // Sums 9, 9, 6, 5, 7.
  EXPECT_EQ(select(GroupMode::kGroupMean, kTwoHeads, {.budget = 4}), (Pages{0, 1, 4, 5}));
}

TEST(GroupSelection, GroupSoftmax_EveryHeadHasOneVote) {
  // Head 0 splits its vote (0.665, 0.245, …), head 1 as well (page 2: 0.727, page 3: 0.267): the
  // best two are pages 2 and 0, although page 1 has the second greatest score of all.
  EXPECT_EQ(select(GroupMode::kGroupSoftmax, kTwoHeads, {.budget = 3}), (Pages{0, 2, 5}));
}

TEST(GroupSelection, Quota_HeadsTakeInTurnThenTheMeanDecides) {
  // Eight pages, budget 5: tail 7 and four free. Quota 4 / 2 / 2 = 1 a head: head 0 takes page 0;
  // head 1 also likes page 0 best, which is taken, so it takes page 2. Means left: page 1: 4,
  // 3: 2.5, 4: 3.5, others less: 1 and 4.
  const HeadScores heads{{9, 8, 0, 0, 7, 0, 0, 0}, {9, 0, 6, 5, 0, 0, 0, 0}};
  EXPECT_EQ(select(GroupMode::kQuota, heads, {.budget = 5}), (Pages{0, 1, 2, 4, 7}));
}

TEST(GroupSelection, ScaleSharpensTheSoftmax) {
  // Nearly flat, the sums of probabilities follow the sums of scores (page 1: 3.8). Sharp, each
  // head gives all its vote to its best page (0 and 2).
  const HeadScores heads{{2, 1.9F, 0, 0}, {0, 1.9F, 2, 0}};
  EXPECT_EQ(select(GroupMode::kGroupSoftmax, heads, {.budget = 2, .scale = 0.1F}), (Pages{1, 3}));
  EXPECT_EQ(select(GroupMode::kGroupSoftmax, heads, {.budget = 2, .scale = 50}), (Pages{0, 3}));
}

TEST(GroupSelection, SoftmaxRanksPagesWhoseProbabilityUnderflows) {
  // exp(-500) and exp(-400) are both zero in float32; page 1 must still beat page 0.
  const HeadScores heads{{-500, -400, 0, 0}, {-500, -400, 0, 0}};
  EXPECT_EQ(select(GroupMode::kGroupSoftmax, heads, {.budget = 3}), (Pages{1, 2, 3}));
}

TEST(GroupSelection, SoftmaxOfInfiniteScoresIsShared) {
  const HeadScores heads{{kInfinity, 1, 2, -kInfinity, 0}, {-kInfinity, -kInfinity, 3, 1, 0}};
  EXPECT_EQ(select(GroupMode::kGroupSoftmax, heads, {.budget = 3}), (Pages{0, 2, 4}));
  const HeadScores hopeless{{-kInfinity, -kInfinity, -kInfinity, 0}};
  EXPECT_EQ(select(GroupMode::kGroupSoftmax, hopeless, {.budget = 3}), (Pages{0, 1, 3}));
}

TEST(GroupSelection, HeadsOfOppositeInfinitiesHaveNoMean) {
  const HeadScores heads{{1, kInfinity, 0, 0}, {1, -kInfinity, 0, 0}};
  const Rows rows(GroupMode::kQuota, heads, 1);
  SelectionScratch scratch;
  Pages pages(3);
  EXPECT_EQ(select_pages(GroupMode::kQuota, rows.scores, forced_of({.budget = 3}, 4), 3, scratch,
                         pages.data()),
            kNanScore);
}

// Rules that hold in every mode.

TEST(GroupSelection, AllScoresEqual_ForcedPagesStayAndTiesGoToTheLowerPage) {
  const HeadScores heads(3, std::vector<float>(40, 1.5F));
  for (GroupMode mode : kModes) {
    // Sinks 9 tokens: pages 0, 1. Window 20 tokens of pages of 8: 37, 38, 39. Two free: 2, 3.
    EXPECT_EQ(select(mode, heads, {.sinks = 9, .window = 20, .budget = 7}),
              (Pages{0, 1, 2, 3, 37, 38, 39}))
        << name_of(mode);
  }
}

TEST(GroupSelection, ForcedPagesAreNeverCountedTwice) {
  // The forced pages hold the best scores; the free budget must go to other pages.
  const HeadScores heads{{99, 1, 2, 3, 4, 98, 99}, {99, 1, 2, 3, 4, 98, 99}};
  for (GroupMode mode : kModes) {
    EXPECT_EQ(select(mode, heads, {.sinks = 1, .window = 16, .budget = 5}), (Pages{0, 3, 4, 5, 6}))
        << name_of(mode);
  }
}

TEST(GroupSelection, BudgetOfOnePageReadsTheTailOnly) {
  for (GroupMode mode : kModes) {
    EXPECT_EQ(select(mode, kTwoHeads, {.sinks = 8, .window = 16, .budget = 1}), (Pages{5}))
        << name_of(mode);
  }
}

TEST(GroupSelection, BudgetOfAllPagesListsAll) {
  for (GroupMode mode : kModes) {
    for (std::int64_t budget : {6L, 7L, std::numeric_limits<std::int64_t>::max()}) {
      EXPECT_EQ(select(mode, kTwoHeads, {.budget = budget}), (Pages{0, 1, 2, 3, 4, 5}));
    }
  }
}

TEST(GroupSelection, TwoKvHeadsThatNeedDifferentPagesEachFindTheirs) {
  // One list per KV head: nothing is averaged over KV heads.
  const HeadScores first{{0, 9, 0, 0, 0, 0}, {0, 8, 0, 0, 0, 0}};
  const HeadScores second{{0, 0, 0, 9, 0, 0}, {0, 0, 0, 8, 0, 0}};
  for (GroupMode mode : kModes) {
    EXPECT_EQ(select(mode, first, {.budget = 2}), (Pages{1, 5})) << name_of(mode);
    EXPECT_EQ(select(mode, second, {.budget = 2}), (Pages{3, 5})) << name_of(mode);
  }
}

TEST(GroupSelection, NaNIsReportedInCandidatesAndForcedPagesAlike) {
  for (GroupMode mode : kModes) {
    for (std::size_t page : {0U, 2U, 5U}) {
      HeadScores heads = kTwoHeads;
      heads[1][page] = std::nanf("");
      const Rows rows(mode, heads, 1);
      SelectionScratch scratch;
      Pages pages(6);
      EXPECT_EQ(select_pages(mode, rows.scores, forced_of({.sinks = 1, .budget = 3}, 6), 3, scratch,
                             pages.data()),
                kNanScore)
          << name_of(mode) << " page " << page;
    }
  }
}

TEST(GroupSelection, ReservedScratchIsNotReallocated) {
  SelectionScratch scratch;
  scratch.reserve(2, 6);
  const auto addresses = [&] {
    return std::vector<const void*>{scratch.combined.data(), scratch.log_probabilities.data(),
                                    scratch.keys.data(), scratch.refine.data(),
                                    scratch.taken.data()};
  };
  const auto before = addresses();
  for (GroupMode mode : kModes) {
    const Rows rows(mode, kTwoHeads, 1);
    Pages pages(6);
    select_pages(mode, rows.scores, forced_of({.budget = 3}, 6), 3, scratch, pages.data());
    EXPECT_EQ(addresses(), before) << name_of(mode);
  }
}

/// Scores that are multiples of 60 below 2^14: their sums and their means over 1 … 6 heads are
/// exact in float32, so that float and double rank alike, ties included.
HeadScores arbitrary_exact_scores(std::size_t group, std::size_t num_pages) {
  std::mt19937 random(*rc::gen::arbitrary<std::uint32_t>());
  const auto distinct = *rc::gen::inRange(1U, 200U);
  HeadScores heads(group, std::vector<float>(num_pages));
  for (auto& head : heads) {
    for (float& x : head) x = static_cast<float>(static_cast<int>(random() % distinct) - 50) * 60;
  }
  return heads;
}

Choice arbitrary_choice(std::size_t num_pages) {
  return {*rc::gen::inRange(0, 40), *rc::gen::inRange(0, 80),
          *rc::gen::inRange<std::int64_t>(1, static_cast<std::int64_t>(num_pages)), 0.02F};
}

RC_GTEST_PROP(GroupSelection, AgreesWithReference, ()) {
  const auto group = *rc::gen::inRange<std::size_t>(1, 7);
  const auto num_pages = *rc::gen::inRange<std::size_t>(2, 300);
  const HeadScores heads = arbitrary_exact_scores(group, num_pages);
  const Choice choice = arbitrary_choice(num_pages);
  std::vector<std::vector<double>> wide;
  for (const auto& head : heads) wide.emplace_back(head.begin(), head.end());
  SelectionPolicy policy;
  policy.sinks = choice.sinks;
  policy.window = choice.window;
  const Pages forced =
      reference::forced_pages(policy, static_cast<std::int64_t>(num_pages) * 8, 8, choice.budget);
  for (GroupMode mode :
       {GroupMode::kPerHead, GroupMode::kGroupMax, GroupMode::kGroupMean, GroupMode::kQuota}) {
    bool nan = true;
    const Pages expected =
        reference::select_pages(mode, wide, forced, choice.budget, choice.scale, nan);
    RC_ASSERT(!nan);
    RC_ASSERT(select(mode, heads, choice) == expected);
    if (mode != GroupMode::kPerHead) {
      RC_ASSERT(static_cast<std::int64_t>(expected.size()) == choice.budget);
    }
  }
}

RC_GTEST_PROP(GroupSelection, SoftmaxPicksTheGreatestSumsOfProbabilities, ()) {
  const auto group = *rc::gen::inRange<std::size_t>(1, 7);
  const auto num_pages = *rc::gen::inRange<std::size_t>(2, 200);
  const HeadScores heads = arbitrary_exact_scores(group, num_pages);  // ± 9,000 · 0.02 = ± 180
  const Choice choice = arbitrary_choice(num_pages);
  const ForcedPages forced = forced_of(choice, num_pages);
  const auto is_forced = [&](std::size_t p) {
    const auto page = static_cast<std::int32_t>(p);
    return page < forced.sink_end || page >= forced.recent_begin;
  };

  // Long double reaches exp(-11,000): the plain sum of softmaxes can be written down as it is.
  std::vector<long double> votes(num_pages, 0);
  for (const auto& head : heads) {
    long double sum = 0;
    for (std::size_t p = 0; p < num_pages; ++p) {
      if (!is_forced(p)) sum += std::exp(static_cast<long double>(choice.scale * head[p]));
    }
    for (std::size_t p = 0; p < num_pages; ++p) {
      if (!is_forced(p))
        votes[p] += std::exp(static_cast<long double>(choice.scale * head[p])) / sum;
    }
  }

  const Pages pages = select(GroupMode::kGroupSoftmax, heads, choice);
  RC_ASSERT(static_cast<std::int64_t>(pages.size()) == choice.budget);
  const std::set<std::int32_t> chosen(pages.begin(), pages.end());
  RC_ASSERT(chosen.size() == pages.size());
  long double worst_chosen = std::numeric_limits<long double>::infinity();
  long double best_left = 0;
  for (std::size_t p = 0; p < num_pages; ++p) {
    const bool is_chosen = chosen.contains(static_cast<std::int32_t>(p));
    if (is_forced(p)) {
      RC_ASSERT(is_chosen);
    } else if (is_chosen) {
      worst_chosen = std::min(worst_chosen, votes[p]);
    } else {
      best_left = std::max(best_left, votes[p]);
    }
  }
  RC_ASSERT(worst_chosen >= best_left * (1 - 1e-4L));  // float32 logits of a few hundred
}

}  // namespace
}  // namespace quest
