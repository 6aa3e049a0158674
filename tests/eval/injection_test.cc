// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
// Injected pages on a toy sequence: lists, outputs and counters beside the plain policy's.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "eval/toy_sequence.h"
#include "quest/eval/baseline.h"

namespace quest::eval {
namespace {

using testing::ToySequence;
using testing::ToyTensors;

constexpr std::int32_t kPrompt = 211;  // 13 pages and three tokens
constexpr std::int32_t kRows = 9;

class InjectionTest : public ::testing::Test {
 protected:
  InjectionTest() {
    policy_.budget = 96;  // six pages
    policy_.sinks = 16;
    policy_.window = 17;
    policy_.dense_layers = 0;
  }

  std::unique_ptr<ToySequence> after_prompt(const AttentionFactory& attention, int threads = 1) {
    auto toy = std::make_unique<ToySequence>(tensors_, policy_, attention, type_, threads);
    toy->read(kPrompt, false);
    toy->backend->reset_counters();
    return toy;
  }

  /// Expects of every list, output and count that they are those of the union with `injected`.
  void expect_union(ToySequence& plain, ToySequence& toy, const std::set<std::int32_t>& injected,
                    LayerRange layers) {
    const AttentionCounters before = toy.backend->counters();
    const std::int64_t first = toy.cache->length(toy.sequence);
    plain.backend->reset_counters();
    plain.read(kRows, true);
    toy.read(kRows, true);
    std::int64_t added = 0;
    for (std::int32_t layer = 0; layer < 2; ++layer) {
      for (std::int32_t row = 0; row < kRows; ++row) {
        for (std::int32_t head = 0; head < 2; ++head) {
          const auto own = plain.pages(layer, row, head);
          std::set<std::int32_t> wanted(own.begin(), own.end());
          if (layers.holds(layer)) wanted.insert(injected.begin(), injected.end());
          added += static_cast<std::int64_t>(wanted.size() - own.size());
          EXPECT_EQ(toy.pages(layer, row, head),
                    std::vector<std::int32_t>(wanted.begin(), wanted.end()));
          expect_output(toy, layer, row, head, first + row, wanted);
        }
      }
    }
    const AttentionCounters mine = toy.backend->counters();
    const AttentionCounters theirs = plain.backend->counters();
    const std::int64_t bytes = toy.cache->shape().page_bytes();
    EXPECT_EQ(mine.k_bytes - before.k_bytes, theirs.k_bytes + added * bytes);
    EXPECT_EQ(mine.v_bytes - before.v_bytes, theirs.v_bytes + added * bytes);
    EXPECT_EQ(mine.pages_read - before.pages_read, theirs.pages_read + added);
    EXPECT_EQ(mine.summary_bytes - before.summary_bytes, theirs.summary_bytes);
    EXPECT_EQ(mine.dense_bytes - before.dense_bytes, theirs.dense_bytes);
    EXPECT_EQ(baselines_.injected().pages, added);
    EXPECT_EQ(baselines_.injected().bytes, 2 * added * bytes);
    added_ = added;
  }

  void expect_output(const ToySequence& toy, std::int32_t layer, std::int32_t row,
                     std::int32_t head, std::int64_t position,
                     const std::set<std::int32_t>& pages) const {
    std::vector<std::int64_t> tokens;
    for (std::int64_t t = 0; t <= position; ++t) {
      if (pages.contains(static_cast<std::int32_t>(t / 16))) tokens.push_back(t);
    }
    for (std::int32_t q = 2 * head; q < 2 * head + 2; ++q) {
      const std::vector<double> wanted = tensors_.attention(layer, position, q, tokens);
      const float* out = toy.output(layer, row, q);
      for (std::size_t j = 0; j < wanted.size(); ++j) {
        ASSERT_NEAR(out[j], wanted[j], 2e-5) << layer << ' ' << row << ' ' << q;
      }
    }
  }

  ToyTensors tensors_{260, 7};
  SelectionPolicy policy_;
  KvType type_ = KvType::kF32;
  Baselines baselines_;
  std::int64_t added_ = 0;
};

TEST_F(InjectionTest, ListsAreTheUnionAndAttentionFollowsThem) {
  for (const int threads : {1, 2}) {
    for (const LayerRange layers : {LayerRange{0, 1}, LayerRange{1, 1}, LayerRange{0, 0}}) {
      auto plain = after_prompt(make_cpu_backend);
      auto toy = after_prompt(baselines_.attention(), threads);
      baselines_.use(BaselineKind::kInject);
      baselines_.inject(std::vector<std::int32_t>{8, 0, 3, 5, 3}, layers);
      expect_union(*plain, *toy, {0, 3, 5, 8}, layers);
      EXPECT_GT(added_, 0);
      EXPECT_EQ(toy->backend->counters().sparse_lists, 4 * kRows);
      EXPECT_EQ(toy->backend->counters().dense_lists, 0);
      baselines_.use(std::nullopt);
    }
  }
}

TEST_F(InjectionTest, LayersOutsideTheRangeAndPagesAlreadyReadChangeNoBit) {
  auto plain = after_prompt(make_cpu_backend);
  auto toy = after_prompt(baselines_.attention());
  baselines_.use(BaselineKind::kInject);
  baselines_.inject(std::vector<std::int32_t>{5}, {1, 1});
  expect_union(*plain, *toy, {5}, {1, 1});
  EXPECT_EQ(toy->out[0], plain->out[0]);
  EXPECT_NE(toy->out[1], plain->out[1]);
  baselines_.inject(std::vector<std::int32_t>{0, 13}, {0, 1});  // a sink, and in the window
  expect_union(*plain, *toy, {0, 13}, {0, 1});
  EXPECT_EQ(added_, 0);
  EXPECT_EQ(toy->out, plain->out);
  baselines_.inject({}, {0, 1});
  expect_union(*plain, *toy, {}, {0, 1});
  EXPECT_EQ(toy->out, plain->out);
}

TEST_F(InjectionTest, RowsThatReadEverythingStayAsTheyAre) {
  policy_.dense_layers = 1;
  auto plain = after_prompt(make_cpu_backend);
  auto toy = after_prompt(baselines_.attention());
  baselines_.use(BaselineKind::kInject);
  baselines_.inject(std::vector<std::int32_t>{3, 5}, {0, 1});
  expect_union(*plain, *toy, {3, 5}, {0, 1});
  EXPECT_EQ(toy->out[0], plain->out[0]);
  EXPECT_EQ(toy->backend->counters().dense_lists, 2 * kRows);
  baselines_.inject(std::vector<std::int32_t>{3, 5}, {0, 1});
  toy->read(kRows, false);
  plain->read(kRows, false);
  EXPECT_EQ(toy->out, plain->out);
  EXPECT_EQ(baselines_.injected().pages, 0);
}

TEST_F(InjectionTest, PagesThatARowDoesNotSeeYetWaitForTheirRow) {
  auto plain = after_prompt(make_cpu_backend);
  auto toy = after_prompt(baselines_.attention());
  baselines_.use(BaselineKind::kInject);
  baselines_.inject(std::vector<std::int32_t>{14, 40}, {0, 1});
  plain->read(kRows, true);
  toy->read(kRows, true);  // up to token 219, of page 13
  EXPECT_EQ(toy->out, plain->out);
  EXPECT_EQ(baselines_.injected().pages, 0);
}

TEST_F(InjectionTest, AUnionOfAllPagesCountsAsDenseAndEqualsTheReference) {
  const std::vector<std::int32_t> all = {13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0};
  for (const KvType type : {KvType::kF32, KvType::kF16, KvType::kQ8_0}) {
    type_ = type;
    auto reference = after_prompt(make_reference_backend);
    auto toy = after_prompt(baselines_.attention());
    baselines_.use(BaselineKind::kInject);
    baselines_.inject(all, {1, 1});
    reference->read(1, false);
    toy->read(1, true);
    for (std::size_t j = 0; j < toy->out[1].size(); ++j) {
      ASSERT_NEAR(toy->out[1][j], reference->out[1][j], 1e-4) << name_of(type) << ' ' << j;
    }
    const AttentionCounters& counters = toy->backend->counters();
    EXPECT_EQ(counters.sparse_lists, 2);
    EXPECT_EQ(counters.dense_lists, 2);
    EXPECT_EQ(counters.pages_read, 2 * 6 + 2 * 14);
    EXPECT_EQ(baselines_.injected().pages, 2 * 8);
    baselines_.use(std::nullopt);
  }
}

}  // namespace
}  // namespace quest::eval
