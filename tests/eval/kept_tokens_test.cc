// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "eval/kept_tokens.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <set>

namespace quest::eval {
namespace {

using ::testing::ElementsAre;

TEST(KeptTokens, LowestScoresGoAndOfEqualOnesTheOldest) {
  KeptTokens kept({0.5, 0.1, 0.3, 0.1, 0.4, 0.1});
  kept.evict(4, 0);
  EXPECT_THAT(kept.tokens(), ElementsAre(0, 2, 4, 5));
  kept.append(6);  // score 0
  kept.evict(4, 0);
  EXPECT_THAT(kept.tokens(), ElementsAre(0, 2, 4, 5));
}

TEST(KeptTokens, RecentTokensAreSafeWhateverTheirScores) {
  KeptTokens kept({0.9, 0.8, 0.7, 0.0, 0.0});
  kept.evict(3, 2);
  EXPECT_THAT(kept.tokens(), ElementsAre(0, 3, 4));
  kept.evict(1, 2);  // two recent ones, room for one
  EXPECT_EQ(kept.size(), 1);
}

TEST(KeptTokens, ScoresAddOrReplace) {
  KeptTokens kept({1, 2, 3});
  kept.add_scores(std::vector<double>{5, 0, 0});
  kept.evict(2, 0);
  EXPECT_THAT(kept.tokens(), ElementsAre(0, 2));
  kept.set_scores(std::vector<double>{0, 1});
  kept.evict(1, 0);
  EXPECT_THAT(kept.tokens(), ElementsAre(2));
}

RC_GTEST_PROP(KeptTokens, BudgetHoldsAndWhatIsGoneStaysGone, ()) {
  const auto scores = *rc::gen::container<std::vector<double>>(
      rc::gen::map(rc::gen::inRange(0, 6), [](int x) { return x / 4.0; }));
  KeptTokens kept(scores);
  std::set<std::int64_t> gone;
  auto next = static_cast<std::int64_t>(scores.size());
  const int steps = *rc::gen::inRange(1, 30);
  for (int i = 0; i < steps; ++i) {
    const std::int64_t most = *rc::gen::inRange<std::int64_t>(1, 12);
    const std::int64_t recent = *rc::gen::inRange<std::int64_t>(0, most);
    const std::vector<std::int64_t> before(kept.tokens().begin(), kept.tokens().end());
    kept.evict(most, recent);
    RC_ASSERT(kept.size() ==
              std::min<std::int64_t>(most, static_cast<std::int64_t>(before.size())));
    const std::set<std::int64_t> now(kept.tokens().begin(), kept.tokens().end());
    RC_ASSERT(static_cast<std::int64_t>(now.size()) == kept.size());
    for (const std::int64_t token : before) {
      if (!now.contains(token)) gone.insert(token);
    }
    const auto safe = std::min<std::int64_t>(recent, static_cast<std::int64_t>(before.size()));
    RC_ASSERT(std::equal(before.end() - safe, before.end(), kept.tokens().end() - safe));
    for (const std::int64_t token : now) RC_ASSERT(!gone.contains(token));
    kept.append(next++);
    std::vector<double> weights;
    for (std::int64_t t = 0; t < kept.size(); ++t) weights.push_back(*rc::gen::inRange(0, 5));
    kept.add_scores(weights);
  }
}

}  // namespace
}  // namespace quest::eval
