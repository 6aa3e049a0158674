// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
// The kernels that make one score of the group from those of its query heads (SPEC S4.4), on the
// emulator: worked choices, and the sum of softmaxes written down in float64.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "cuda/select_case.h"

namespace quest::test {
namespace {

using Pages = std::vector<std::int32_t>;
using HeadScores = std::vector<std::vector<float>>;  // [group][P]

constexpr float kInfinity = std::numeric_limits<float>::infinity();

SelectCase case_of(GroupMode mode, const HeadScores& heads, std::int32_t budget, float scale = 1) {
  SelectCase c;
  c.mode = mode;
  c.group = static_cast<std::int32_t>(heads.size());
  c.num_pages = static_cast<std::int32_t>(heads[0].size());
  c.budget = budget;
  c.scale = scale;
  for (const auto& head : heads) c.scores.insert(c.scores.end(), head.begin(), head.end());
  return c;
}

Pages select(GroupMode mode, const HeadScores& heads, std::int32_t budget, float scale = 1) {
  return run_select(case_of(mode, heads, budget, scale)).pages;
}

TEST(CudaCombine, GroupSoftmax_EveryHeadHasOneVote) {
  // Of the pages but the tail, 5: head 0 gives page 0 0.665 and page 1 0.245, head 1 page 2 0.727
  // and page 3 0.267. The best two are pages 2 and 0, although page 1 has the second greatest
  // score.
  EXPECT_EQ(select(GroupMode::kGroupSoftmax, {{9, 8, 0, 0, 7, 0}, {0, 1, 6, 5, 0, 0}}, 3),
            (Pages{0, 2, 5}));
}

TEST(CudaCombine, GroupSoftmax_ScaleSharpens) {
  // Nearly flat, the sums of probabilities follow the sums of scores (page 1: 3.8). Sharp, each
  // head gives all its vote to its best page (0 and 2), and the lower one wins.
  const HeadScores heads{{2, 1.9F, 0, 0}, {0, 1.9F, 2, 0}};
  EXPECT_EQ(select(GroupMode::kGroupSoftmax, heads, 2, 0.1F), (Pages{1, 3}));
  EXPECT_EQ(select(GroupMode::kGroupSoftmax, heads, 2, 50), (Pages{0, 3}));
}

TEST(CudaCombine, GroupSoftmax_RanksPagesWhoseProbabilityUnderflows) {
  // exp(-500) and exp(-400) are both zero in float32; page 1 must still beat page 0.
  const HeadScores heads{{-500, -400, 0, 0}, {-500, -400, 0, 0}};
  EXPECT_EQ(select(GroupMode::kGroupSoftmax, heads, 3), (Pages{1, 2, 3}));
}

TEST(CudaCombine, GroupSoftmax_InfiniteScoresShareTheVote) {
  const HeadScores heads{{kInfinity, 1, 2, -kInfinity, 0}, {-kInfinity, -kInfinity, 3, 1, 0}};
  EXPECT_EQ(select(GroupMode::kGroupSoftmax, heads, 3), (Pages{0, 2, 4}));
  const HeadScores hopeless{{-kInfinity, -kInfinity, -kInfinity, 0}};
  EXPECT_EQ(select(GroupMode::kGroupSoftmax, hopeless, 3), (Pages{0, 1, 3}));
}

/// The greatest scores are on forced pages. They have no vote: the others would all be left with
/// nothing, and rank by rounding.
TEST(CudaCombine, GroupSoftmax_ForcedPagesHaveNoVote) {
  SelectCase c =
      case_of(GroupMode::kGroupSoftmax, {{4000, 1, 2, 3, 0, 5000}, {4000, 3, 2.5F, 1, 0, 5000}}, 4);
  c.sinks = 1;
  const Selected selected = run_select(c);
  // Of pages 1 to 4, head 0: 0.087, 0.237, 0.644, 0.032; head 1: 0.558, 0.339, 0.076, 0.028.
  EXPECT_EQ(selected.pages, (Pages{0, 1, 3, 5}));
  EXPECT_NEAR(std::exp(selected.combined[1]), 0.645, 1e-3);
  EXPECT_NEAR(std::exp(selected.combined[3]), 0.719, 1e-3);
}

TEST(CudaCombine, Quota_HeadsTakeInTurnThenTheMeanDecides) {
  // Eight pages, budget 5: tail 7 and four free. Quota 4 / 2 / 2 = 1 a head: head 0 takes page 0;
  // head 1 also likes page 0 best, which is taken, so it takes page 2. Means left: page 1: 4,
  // 3: 2.5, 4: 3.5, others less: 1 and 4.
  const HeadScores heads{{9, 8, 0, 0, 7, 0, 0, 0}, {9, 0, 6, 5, 0, 0, 0, 0}};
  EXPECT_EQ(select(GroupMode::kQuota, heads, 5), (Pages{0, 1, 2, 4, 7}));
}

TEST(CudaCombine, Quota_OppositeInfinitiesHaveNoMean) {
  const SelectCase c = case_of(GroupMode::kQuota, {{1, kInfinity, 0, 0}, {1, -kInfinity, 0, 0}}, 3);
  EXPECT_NE(run_select(c).report.nan_place, cuda::StepReport::kNoNan);
}

/// log Σ_heads softmax(scale · score) of every page that is free to choose.
std::vector<double> votes_of(const SelectCase& c) {
  const ForcedPages forced = c.forced();
  std::vector<double> votes(static_cast<std::size_t>(c.num_pages), 0);
  for (std::int32_t h = 0; h < c.group; ++h) {
    double top = -std::numeric_limits<double>::infinity();
    for (std::int32_t p = forced.sink_end; p < forced.recent_begin; ++p) {
      top = std::max(top, double{c.scale} * c.score(h, p));
    }
    double sum = 0;
    for (std::int32_t p = forced.sink_end; p < forced.recent_begin; ++p) {
      sum += std::exp(double{c.scale} * c.score(h, p) - top);
    }
    for (std::int32_t p = forced.sink_end; p < forced.recent_begin; ++p) {
      votes[static_cast<std::size_t>(p)] += std::exp(double{c.scale} * c.score(h, p) - top) / sum;
    }
  }
  for (double& vote : votes) vote = std::log(vote);
  return votes;
}

/// Rows shorter and longer than a part and than a block, any group, forced pages at both ends.
TEST(CudaCombine, GroupSoftmax_IsTheSumOfTheHeadsSoftmaxes) {
  std::mt19937 random(11);
  std::normal_distribution<float> normal(0, 20);
  for (const std::int32_t group : {1, 2, 3, 7, 16}) {
    for (const std::int32_t num_pages : {3, 63, 64, 65, 255, 300, 1000}) {
      SelectCase c;
      c.mode = GroupMode::kGroupSoftmax;
      c.group = group;
      c.num_pages = num_pages;
      c.tail_tokens = 1 + static_cast<std::int32_t>(random() % kPageSize);
      c.budget = 1 + static_cast<std::int32_t>(random() % static_cast<unsigned>(num_pages - 1));
      c.sinks = static_cast<std::int32_t>(random() % 40);
      c.window = static_cast<std::int32_t>(random() % 60);
      c.scale = 0.125F;
      c.scores.resize(static_cast<std::size_t>(group) * num_pages);
      for (float& x : c.scores) x = normal(random);
      const Selected selected = run_select(c);
      const std::vector<double> votes = votes_of(c);
      const ForcedPages forced = c.forced();
      for (std::int32_t p = 0; p < num_pages; ++p) {
        const auto at = static_cast<std::size_t>(p);
        const bool free = p >= forced.sink_end && p < forced.recent_begin;
        ASSERT_NEAR(selected.combined[at], free ? votes[at] : 0, 1e-5)
            << "group " << group << ", " << num_pages << " pages, page " << p;
      }
      EXPECT_EQ(static_cast<std::int32_t>(selected.pages.size()), c.budget);
    }
  }
}

/// A softmax that spans parts of 64 pages whose shares differ by far, with parts that have no page
/// to choose from at either end, and parts that hold nothing but -inf.
TEST(CudaCombine, GroupSoftmax_PartsOfAllMagnitudesJoin) {
  for (const std::int32_t best : {100, 300, 600}) {  // in which part the greatest scores are
    SelectCase c;
    c.mode = GroupMode::kGroupSoftmax;
    c.group = 2;
    c.num_pages = 700;
    c.budget = 600;
    c.sinks = 70 * kPageSize;   // pages 0 to 69: a part and more
    c.window = 80 * kPageSize;  // pages 620 on
    c.scale = 0.5F;
    c.scores.assign(std::size_t{2} * 700, -kInfinity);
    const auto set = [&](std::int32_t h, std::int32_t first, std::int32_t end, float score) {
      const auto head = c.scores.begin() + std::int64_t{h} * c.num_pages;
      std::fill(head + first, head + end, score);
    };
    set(0, 0, 70, 900);  // forced: no vote, however great
    set(0, 620, 700, 800);
    set(0, 70, 200, -40);
    set(0, 200, 256, 3);
    set(0, 320, 384, 2);
    set(0, best, best + 1, 5);
    set(1, 128, 620, 1);
    set(1, best, best + 2, -250);
    const Selected selected = run_select(c);
    const std::vector<double> votes = votes_of(c);
    for (std::int32_t p = 70; p < 620; ++p) {
      const auto at = static_cast<std::size_t>(p);
      if (std::isinf(votes[at])) {
        ASSERT_EQ(selected.combined[at], -kInfinity) << "page " << p;
      } else {
        ASSERT_NEAR(selected.combined[at], votes[at], 2e-6 * (1 - votes[at])) << "page " << p;
      }
    }
  }
}

/// More parts than a warp has lanes, the greatest score by far in one of the last.
TEST(CudaCombine, GroupSoftmax_ManyPartsJoinWhereverTheBestIs) {
  SelectCase c;
  c.mode = GroupMode::kGroupSoftmax;
  c.num_pages = 3000;
  c.budget = 20;
  c.scores.assign(3000, 0);
  c.scores[2900] = 500;
  const Selected selected = run_select(c);
  EXPECT_NEAR(selected.combined[2900], 0, 1e-6);
  EXPECT_NEAR(selected.combined[0], -500, 1e-4);
  EXPECT_NEAR(selected.combined[2901], -500, 1e-4);
}

/// The votes of an infinite score are shared over all parts.
TEST(CudaCombine, GroupSoftmax_InfiniteScoresOfSeveralPartsShareTheVote) {
  SelectCase c;
  c.mode = GroupMode::kGroupSoftmax;
  c.num_pages = 500;
  c.budget = 400;
  c.scores.assign(500, 1);
  for (const int p : {3, 70, 71, 300}) c.scores[static_cast<std::size_t>(p)] = kInfinity;
  const Selected some = run_select(c);
  EXPECT_NEAR(some.combined[71], std::log(0.25), 1e-6);
  EXPECT_EQ(some.combined[72], -kInfinity);
  c.scores.assign(500, -kInfinity);
  const Selected none = run_select(c);
  EXPECT_NEAR(none.combined[72], -std::log(499.0), 1e-5);  // all but the tail
}

/// In whichever head it is, on a forced page or beside an infinite score.
TEST(CudaCombine, Nan_OfAnyHeadReachesTheGroup) {
  for (const GroupMode mode : {GroupMode::kGroupSoftmax, GroupMode::kQuota}) {
    for (const std::int32_t head : {0, 1, 2}) {
      for (const std::int32_t page : {0, 7, 49}) {
        for (const float other : {0.5F, kInfinity}) {
          SelectCase c = case_of(mode, HeadScores(3, std::vector<float>(50, 0.5F)), 10);
          c.sinks = 8;
          c.scores[static_cast<std::size_t>(head) * 50 + 20] = other;
          c.scores[static_cast<std::size_t>(head) * 50 + page] = std::nanf("");
          EXPECT_EQ(run_select(c).report.nan_place, 5U * 2 + 1)
              << name_of(mode) << " head " << head << " page " << page;
        }
      }
    }
  }
}

}  // namespace
}  // namespace quest::test
