// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
// Each baseline beside the same rule written down once more, in float64 over plain arrays.
#include "quest/eval/baseline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "eval/toy_sequence.h"
#include "quest/error.h"

namespace quest::eval {
namespace {

using ::testing::ElementsAre;
using ::testing::IsSupersetOf;
using testing::ToySequence;
using testing::ToyTensors;

constexpr std::int64_t kPrompt = 211;  // 13 pages and three tokens
constexpr std::int64_t kTokens = 260;

SelectionPolicy toy_policy() {
  SelectionPolicy policy;
  policy.budget = 96;  // six pages, of which three are forced: tail and two of the window, or sinks
  policy.sinks = 16;
  policy.window = 17;
  policy.dense_layers = 0;
  return policy;
}

std::vector<std::int64_t> tokens_before(std::int64_t end) {
  std::vector<std::int64_t> tokens;
  for (std::int64_t t = 0; t < end; ++t) tokens.push_back(t);
  return tokens;
}

std::vector<std::int64_t> tokens_of(const std::vector<std::int32_t>& pages, std::int64_t position) {
  std::vector<std::int64_t> tokens;
  for (const std::int32_t page : pages) {
    for (std::int64_t t = page * 16; t < page * 16 + 16 && t <= position; ++t) tokens.push_back(t);
  }
  return tokens;
}

class BaselineTest : public ::testing::Test {
 protected:
  /// A sequence whose prompt was read with full attention, in two pieces.
  std::unique_ptr<ToySequence> after_prompt(const SelectionPolicy& policy, int threads = 1,
                                            KvType type = KvType::kF32) {
    auto toy =
        std::make_unique<ToySequence>(tensors_, policy, baselines_.attention(), type, threads);
    baselines_.release(toy->sequence);  // of the cache before this one
    baselines_.watch(toy->sequence, true);
    toy->read(150, false);
    toy->read(static_cast<std::int32_t>(kPrompt - 150), false);
    toy->backend->reset_counters();
    return toy;
  }

  void expect_output(const ToySequence& toy, std::int32_t layer, std::int32_t row, std::int32_t q,
                     const std::vector<double>& wanted) const {
    const float* out = toy.output(layer, row, q);
    for (std::size_t j = 0; j < wanted.size(); ++j) {
      ASSERT_NEAR(out[j], wanted[j], 2e-5) << "layer " << layer << " row " << row << " head " << q;
    }
  }

  ToyTensors tensors_{kTokens, 7};
  Baselines baselines_;
};

/// Eviction by a map of what is left, one token at a time.
class NaiveEviction {
 public:
  NaiveEviction(const ToyTensors& tensors, BaselineKind kind, std::int32_t layer, std::int32_t head)
      : tensors_(tensors), heavy_(kind == BaselineKind::kH2o), layer_(layer), head_(head) {
    for (std::int64_t row = 0; row < kPrompt; ++row) {
      left_[row] = 0;
      weigh(row);
    }
  }

  /// The row's tokens, after its own has joined and others have made room.
  std::vector<std::int64_t> step(std::int64_t row, std::int64_t budget) {
    while (static_cast<std::int64_t>(left_.size()) >= budget) {
      auto worst = left_.begin();
      const std::int64_t safe = heavy_ ? budget / 2 - 1 : 0;
      for (auto it = left_.begin(); std::distance(it, left_.end()) > safe; ++it) {
        if (it->second < worst->second) worst = it;
      }
      left_.erase(worst);
    }
    left_[row] = 0;
    std::vector<std::int64_t> tokens = weigh(row);
    return tokens;
  }

 private:
  std::vector<std::int64_t> weigh(std::int64_t row) {
    std::vector<std::int64_t> tokens;
    for (const auto& [token, score] : left_) tokens.push_back(token);
    if (!heavy_) {
      for (auto& [token, score] : left_) score = 0;
    }
    for (std::int32_t g = 0; g < tensors_.group; ++g) {
      const auto weights = tensors_.weights(layer_, row, head_ * tensors_.group + g, tokens);
      for (std::size_t i = 0; i < tokens.size(); ++i) left_[tokens[i]] += weights[i];
    }
    return tokens;
  }

  const ToyTensors& tensors_;
  const bool heavy_;
  const std::int32_t layer_;
  const std::int32_t head_;
  std::map<std::int64_t, double> left_;
};

class EvictingTest : public BaselineTest, public ::testing::WithParamInterface<BaselineKind> {};

TEST_P(EvictingTest, EqualsTheRuleWrittenDownAgain) {
  for (const int threads : {1, 2}) {
    auto toy = after_prompt(toy_policy(), threads);
    baselines_.use(GetParam());
    std::vector<NaiveEviction> naive;
    for (std::int32_t layer = 0; layer < tensors_.layers; ++layer) {
      for (std::int32_t head = 0; head < tensors_.kv_heads; ++head) {
        naive.emplace_back(tensors_, GetParam(), layer, head);
      }
    }
    std::int64_t row = kPrompt;
    for (const std::int32_t rows : {1, 1, 7, 16, 1, 12}) {
      toy->read(rows, true);
      for (std::int32_t i = 0; i < rows; ++i, ++row) {
        for (std::int32_t layer = 0; layer < tensors_.layers; ++layer) {
          for (std::int32_t head = 0; head < tensors_.kv_heads; ++head) {
            const auto tokens = naive[layer * tensors_.kv_heads + head].step(row, 96);
            ASSERT_EQ(tokens.size(), 96U);
            std::set<std::int32_t> pages;
            for (const std::int64_t t : tokens) pages.insert(static_cast<std::int32_t>(t / 16));
            EXPECT_EQ(toy->pages(layer, i, head),
                      std::vector<std::int32_t>(pages.begin(), pages.end()));
            for (std::int32_t g = 0; g < tensors_.group; ++g) {
              const std::int32_t q = head * tensors_.group + g;
              expect_output(*toy, layer, i, q, tensors_.attention(layer, row, q, tokens));
            }
          }
        }
      }
    }
    // 38 rows, two layers, two heads; 96 tokens of 64 floats each.
    EXPECT_EQ(toy->backend->counters().k_bytes, 38 * 4 * 96 * 256);
    EXPECT_EQ(toy->backend->counters().v_bytes, 38 * 4 * 96 * 256);
    EXPECT_EQ(toy->backend->counters().summary_bytes, 0);
    EXPECT_EQ(toy->backend->counters().sparse_lists, 38 * 4);
    baselines_.use(std::nullopt);
    baselines_.release(toy->sequence);
  }
}

TEST_P(EvictingTest, ForksLoseWhatTheirParentLostAndThenGoTheirOwnWays) {
  auto toy = after_prompt(toy_policy());
  baselines_.use(GetParam());
  toy->read(5, true);
  const SequenceId parent = toy->sequence;
  const SequenceId child = toy->cache->fork(parent);
  baselines_.fork(parent, child);
  toy->read(9, true);
  const auto wanted = toy->out;
  toy->sequence = child;
  toy->read(9, true);
  EXPECT_EQ(toy->out, wanted);
  EXPECT_EQ(baselines_.sequences(), 2U);
  baselines_.release(child);
  baselines_.release(parent);
  EXPECT_EQ(baselines_.sequences(), 0U);
}

TEST_P(EvictingTest, SmallerBudgetTakesOverWhatIsLeft) {
  SelectionPolicy policy = toy_policy();
  policy.budget = 160;
  auto toy = after_prompt(policy);
  baselines_.use(GetParam());
  std::vector<NaiveEviction> naive(1, {tensors_, GetParam(), 1, 1});
  toy->read(1, true);
  naive[0].step(kPrompt, 160);
  policy.budget = 32;
  toy->backend->set_policy(policy);
  toy->read(1, true);
  const auto tokens = naive[0].step(kPrompt + 1, 32);
  EXPECT_EQ(tokens.size(), 32U);
  expect_output(*toy, 1, 0, 3, tensors_.attention(1, kPrompt + 1, 3, tokens));
}

TEST_P(EvictingTest, DenseLayersKeepEverything) {
  SelectionPolicy policy = toy_policy();
  policy.dense_layers = 1;
  auto toy = after_prompt(policy);
  baselines_.use(GetParam());
  toy->read(3, true);
  for (std::int32_t q = 0; q < 4; ++q) {
    expect_output(*toy, 0, 2, q, tensors_.attention(0, kPrompt + 2, q, tokens_before(kPrompt + 3)));
  }
  EXPECT_EQ(toy->backend->counters().dense_lists, 3 * 2);
  EXPECT_EQ(toy->backend->counters().sparse_lists, 3 * 2);
}

TEST_P(EvictingTest, WhatCannotBeRightIsRefused) {
  auto toy = after_prompt(toy_policy());
  const SequenceId watched = toy->sequence;
  baselines_.use(GetParam());
  toy->read(1, true);
  EXPECT_THROW(toy->read(1, false), InvalidArgument);  // the lost tokens cannot be read again
  baselines_.use(BaselineKind::kOracle);
  toy->cache->truncate(watched, kPrompt + 1);
  EXPECT_THROW(toy->read(1, true), InvalidArgument);
  baselines_.use(GetParam());
  toy->cache->truncate(watched, kPrompt);
  EXPECT_THROW(toy->read(1, true), InvalidArgument);  // a token fewer than were seen
  toy->sequence = toy->cache->fork(watched);          // nobody knows it
  EXPECT_THROW(toy->read(1, true), InvalidArgument);
}

INSTANTIATE_TEST_SUITE_P(Rules, EvictingTest,
                         ::testing::Values(BaselineKind::kH2o, BaselineKind::kTova));

/// Pages by largest logit, the heads' maxima combined by the mode.
std::vector<std::int32_t> naive_oracle(const ToyTensors& tensors, std::int32_t layer,
                                       std::int64_t row, std::int32_t head, GroupMode mode,
                                       std::set<std::int32_t> chosen, std::size_t budget) {
  const auto num_pages = static_cast<std::int32_t>(row / 16 + 1);
  std::vector<std::vector<double>> rankings;
  for (std::int32_t g = 0; g < tensors.group; ++g) {
    std::vector<double> best(static_cast<std::size_t>(num_pages), -1e9);
    for (std::int64_t t = 0; t <= row; ++t) {
      best[t / 16] = std::max(best[t / 16], tensors.logit(layer, row, head * tensors.group + g, t));
    }
    rankings.push_back(best);
  }
  if (mode != GroupMode::kPerHead) {
    for (std::int32_t p = 0; p < num_pages; ++p) {
      const double a = rankings[0][p];
      const double b = rankings[1][p];
      rankings[0][p] = mode == GroupMode::kGroupMax ? std::max(a, b) : (a + b) / 2;
    }
    rankings.resize(1);
  }
  const std::set<std::int32_t> forced = chosen;
  for (const std::vector<double>& ranking : rankings) {
    std::set<std::int32_t> mine = forced;
    while (mine.size() < budget) {
      std::int32_t best = -1;
      for (std::int32_t p = 0; p < num_pages; ++p) {
        if (!mine.contains(p) && (best < 0 || ranking[p] > ranking[best])) best = p;
      }
      mine.insert(best);
    }
    chosen.insert(mine.begin(), mine.end());
  }
  return {chosen.begin(), chosen.end()};
}

std::set<std::int32_t> naive_forced(std::int64_t row) {
  std::set<std::int32_t> forced = {0};
  for (std::int64_t t = row - 16; t <= row; ++t) forced.insert(static_cast<std::int32_t>(t / 16));
  return forced;
}

TEST_F(BaselineTest, OracleReadsThePagesOfTheLargestLogits) {
  for (const GroupMode mode : {GroupMode::kPerHead, GroupMode::kGroupMax, GroupMode::kGroupMean}) {
    SelectionPolicy policy = toy_policy();
    policy.group_mode = mode;
    auto toy = after_prompt(policy, 2);
    baselines_.use(BaselineKind::kOracle);
    toy->read(20, true);
    for (std::int32_t i = 0; i < 20; ++i) {
      const std::int64_t row = kPrompt + i;
      for (std::int32_t head = 0; head < 2; ++head) {
        const auto wanted = naive_oracle(tensors_, 1, row, head, mode, naive_forced(row), 6);
        EXPECT_EQ(toy->pages(1, i, head), wanted) << name_of(mode) << " row " << row;
        const auto tokens = tokens_of(wanted, row);
        expect_output(*toy, 1, i, 2 * head, tensors_.attention(1, row, 2 * head, tokens));
      }
    }
    baselines_.use(std::nullopt);
  }
}

TEST_F(BaselineTest, OracleNeverMissesThePageOfTheLargestLogit) {
  SelectionPolicy policy = toy_policy();
  policy.group_mode = GroupMode::kPerHead;
  policy.sinks = 0;
  policy.window = 0;
  policy.budget = 32;  // the tail and one page for each head
  auto toy = after_prompt(policy);
  baselines_.use(BaselineKind::kOracle);
  for (std::int64_t row = kPrompt; row < kPrompt + 30; ++row) {
    toy->read(1, true);
    for (std::int32_t layer = 0; layer < 2; ++layer) {
      for (std::int32_t q = 0; q < 4; ++q) {
        std::int64_t best = 0;
        for (std::int64_t t = 0; t <= row; ++t) {
          if (tensors_.logit(layer, row, q, t) > tensors_.logit(layer, row, q, best)) best = t;
        }
        EXPECT_THAT(toy->pages(layer, 0, q / 2),
                    ::testing::Contains(static_cast<std::int32_t>(best / 16)));
      }
    }
  }
}

TEST_F(BaselineTest, StreamingAndFixedListsAreKnownInAdvance) {
  auto toy = after_prompt(toy_policy(), 2);
  baselines_.use(BaselineKind::kStreamingLlm);
  toy->read(1, true);  // token 211: page 13
  for (std::int32_t head = 0; head < 2; ++head) {
    EXPECT_THAT(toy->pages(1, 0, head), ElementsAre(0, 9, 10, 11, 12, 13));
    const auto tokens = tokens_of({0, 9, 10, 11, 12, 13}, 211);
    expect_output(*toy, 1, 0, 2 * head + 1, tensors_.attention(1, 211, 2 * head + 1, tokens));
  }
  baselines_.use(BaselineKind::kFixed);
  toy->read(1, true);
  EXPECT_THAT(toy->pages(0, 0, 1), ElementsAre(0, 1, 2, 3, 12, 13));
  const auto tokens = tokens_of({0, 1, 2, 3, 12, 13}, 212);
  expect_output(*toy, 0, 0, 2, tensors_.attention(0, 212, 2, tokens));
  // Two rows, two layers, two heads, six pages of 16 · 64 floats.
  EXPECT_EQ(toy->backend->counters().k_bytes, 2 * 4 * 6 * 4096);
  EXPECT_EQ(toy->backend->counters().pages_read, 2 * 4 * 6);
  EXPECT_EQ(toy->backend->counters().summary_bytes, 0);
}

TEST_F(BaselineTest, RandomPagesAreDrawnAnewAndRepeatUnderTheirSeed) {
  const auto draws = [this](std::uint64_t seed, std::int32_t rows_a_step) {
    auto toy = after_prompt(toy_policy());
    baselines_.use(BaselineKind::kRandom, seed);
    std::vector<std::vector<std::int32_t>> lists;
    for (std::int32_t row = 0; row < 12; row += rows_a_step) {
      toy->read(rows_a_step, true);
      for (std::int32_t i = 0; i < rows_a_step; ++i) {
        for (std::int32_t layer = 0; layer < 2; ++layer) {
          for (std::int32_t head = 0; head < 2; ++head) lists.push_back(toy->pages(layer, i, head));
        }
        const std::int32_t q = 3;
        const auto tokens = tokens_of(lists.back(), kPrompt + row + i);
        expect_output(*toy, 1, i, q, tensors_.attention(1, kPrompt + row + i, q, tokens));
      }
    }
    baselines_.use(std::nullopt);
    return lists;
  };
  const auto first = draws(1, 1);
  EXPECT_EQ(first, draws(1, 4));  // the same, however many rows share a step
  EXPECT_NE(first, draws(2, 1));
  // 48 draws of three of eleven pages or so: nearly all differ, and every page has its turn.
  std::set<std::vector<std::int32_t>> different(first.begin(), first.end());
  EXPECT_GT(different.size(), 40U);
  std::set<std::int32_t> seen;
  for (std::size_t i = 0; i < first.size(); ++i) {
    const std::set<std::int32_t> forced = naive_forced(kPrompt + static_cast<std::int64_t>(i / 4));
    EXPECT_EQ(first[i].size(), 6U);
    EXPECT_TRUE(std::is_sorted(first[i].begin(), first[i].end()));
    EXPECT_THAT(first[i], IsSupersetOf(forced));
    seen.insert(first[i].begin(), first[i].end());
  }
  EXPECT_EQ(seen.size(), 14U);
}

TEST_F(BaselineTest, GatherEqualsTheServingBackendBitForBitAndMovesMore) {
  for (const KvType type : {KvType::kF32, KvType::kF16, KvType::kQ8_0}) {
    for (const int threads : {1, 2}) {
      SelectionPolicy policy = toy_policy();
      policy.dense_layers = 1;
      auto toy = after_prompt(policy, threads, type);
      baselines_.use(BaselineKind::kGather);
      // One thread: the serving backend then splits no list.
      ToySequence quest(tensors_, policy, make_cpu_backend, type, 1);
      quest.read(150, false);
      quest.read(static_cast<std::int32_t>(kPrompt - 150), false);
      quest.backend->reset_counters();
      for (const std::int32_t rows : {1, 20}) {
        toy->read(rows, true);
        quest.read(rows, true);
        EXPECT_EQ(toy->lists[1].pages, quest.lists[1].pages);
        EXPECT_EQ(toy->out[1], quest.out[1]) << name_of(type) << " rows " << rows;
      }
      const AttentionCounters mine = toy->backend->counters();
      const AttentionCounters theirs = quest.backend->counters();
      const std::int64_t selected = 21 * 2 * 6 * toy->cache->shape().page_bytes();
      EXPECT_EQ(mine.k_bytes, theirs.k_bytes + 2 * selected);
      EXPECT_EQ(mine.v_bytes, theirs.v_bytes + 2 * selected);
      EXPECT_EQ(mine.summary_bytes, theirs.summary_bytes);
      EXPECT_EQ(mine.pages_read, theirs.pages_read);
      baselines_.use(std::nullopt);
    }
  }
}

TEST_F(BaselineTest, BudgetOfTheWholeContextIsFullAttention) {
  SelectionPolicy policy = toy_policy();
  policy.budget = 4096;
  for (const BaselineKind kind : all_baselines()) {
    auto toy = after_prompt(policy);
    baselines_.use(kind);
    toy->read(4, true);
    for (std::int32_t q = 0; q < 4; ++q) {
      expect_output(*toy, 1, 3, q,
                    tensors_.attention(1, kPrompt + 3, q, tokens_before(kPrompt + 4)));
    }
    const AttentionCounters& counters = toy->backend->counters();
    EXPECT_EQ(counters.k_bytes + counters.v_bytes, counters.dense_bytes) << name_of(kind);
    EXPECT_EQ(counters.dense_lists, 4 * 4) << name_of(kind);
    baselines_.use(std::nullopt);
  }
}

TEST_F(BaselineTest, NamesAreTheirOwnInverse) {
  EXPECT_EQ(all_baselines().size(), 7U);
  for (const BaselineKind kind : all_baselines()) EXPECT_EQ(parse_baseline(name_of(kind)), kind);
  EXPECT_FALSE(parse_baseline("quest"));
  EXPECT_FALSE(parse_baseline(name_of(BaselineKind::kInject)));  // reads more than the others
}

}  // namespace
}  // namespace quest::eval
