// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
// Baselines as arms of the evaluations, on a tiny model.
#include <gtest/gtest.h>

#include "model/engine_reader.h"
#include "model/random_tokens.h"
#include "model/tiny_gguf.h"
#include "quest/eval/answer.h"
#include "quest/eval/perplexity.h"

namespace quest::eval {
namespace {

class BaselineArmsTest : public ::testing::Test {
 protected:
  BaselineArmsTest()
      : file_(testing::TinyModel()),
        tokens_(testing::random_tokens(testing::TinyModel().vocabulary, 400, 3)),
        baselines_(std::make_shared<Baselines>()) {
    EngineOptions options = testing::dense_options(KvType::kF32, 2400);
    options.attention = baselines_->attention();
    engine_ = testing::make_engine(file_.path(), options);
    plan_.context = 300;
    plan_.tokens = 40;
    plan_.rows = 10;
    whole_cache_ = engine_->cache().free_pages();
  }

  /// Quest's arm, then one for each baseline.
  std::vector<Arm> arms(std::int64_t budget) const {
    Arm quest;
    quest.name = "quest";
    quest.policy.budget = budget;
    quest.policy.dense_layers = 0;
    quest.question = quest.policy;
    std::vector<Arm> result = {quest};
    for (const BaselineKind kind : all_baselines()) {
      Arm arm = quest;
      arm.name = name_of(kind);
      arm.baseline = {kind, 5, baselines_};
      result.push_back(arm);
    }
    return result;
  }

  std::span<const Token> window() const {
    return std::span(tokens_).first(static_cast<std::size_t>(plan_.window_tokens()));
  }

  void expect_nothing_left() const {
    EXPECT_EQ(engine_->cache().free_pages(), whole_cache_);
    EXPECT_EQ(baselines_->sequences(), 0U);
  }

  testing::TemporaryFile file_;
  std::vector<Token> tokens_;
  std::shared_ptr<Baselines> baselines_;
  std::unique_ptr<Engine> engine_;
  PerplexityPlan plan_;
  std::int64_t whole_cache_ = 0;
};

/// Arms that attend to Quest's lists once more, or to lists of their own, read all values of them.
TEST_F(BaselineArmsTest, OnlyQuestLeavesValuesOut) {
  std::vector<Arm> list = arms(96);
  for (Arm& arm : list) arm.policy.value_threshold = 0.9F;
  const PerplexityWindow result = run_window(*engine_, plan_, window(), list).value();
  for (std::size_t i = 0; i < list.size(); ++i) {
    const AttentionCounters& mine = result.arms[i].cost.counters.attention;
    if (i == 0) {
      EXPECT_LT(mine.v_bytes, mine.k_bytes);
    } else {
      EXPECT_EQ(mine.v_bytes, mine.k_bytes) << list[i].name;
    }
  }
}

TEST_F(BaselineArmsTest, AllReadAsManyBytesOfKeysAndValues) {
  const std::vector<Arm> list = arms(96);
  const PerplexityWindow result = run_window(*engine_, plan_, window(), list).value();
  const AttentionCounters quest = result.arms[0].cost.counters.attention;
  EXPECT_GT(quest.summary_bytes, 0);
  for (std::size_t i = 1; i < list.size(); ++i) {
    const ArmCost& cost = result.arms[i].cost;
    const AttentionCounters& mine = cost.counters.attention;
    const bool gather = list[i].baseline->kind == BaselineKind::kGather;
    EXPECT_EQ(mine.k_bytes, quest.k_bytes * (gather ? 3 : 1)) << list[i].name;
    EXPECT_EQ(mine.v_bytes, quest.v_bytes * (gather ? 3 : 1)) << list[i].name;
    EXPECT_EQ(mine.summary_bytes, gather ? quest.summary_bytes : 0) << list[i].name;
    EXPECT_EQ(mine.dense_bytes, quest.dense_bytes) << list[i].name;
    EXPECT_EQ(mine.sparse_lists, quest.sparse_lists) << list[i].name;
    EXPECT_EQ(cost.fallback_lists, 0) << list[i].name;
    EXPECT_EQ(list[i].method(), list[i].name);
    // Another choice, another result; gather makes the same one.
    if (gather) {
      for (std::size_t t = 0; t < 40; ++t) {
        EXPECT_NEAR(result.arms[i].nll[t], result.arms[0].nll[t], 1e-4) << t;
      }
    } else {
      EXPECT_NE(result.arms[i].nll, result.arms[0].nll) << list[i].name;
    }
  }
  expect_nothing_left();
}

TEST_F(BaselineArmsTest, CoveringBudgetsEqualFullAttention) {
  const std::vector<Arm> list = arms(4096);
  const PerplexityWindow result = run_window(*engine_, plan_, window(), list).value();
  // The full arm's ten rows go through the prefill kernel, which rounds more coarsely.
  for (std::size_t i = 0; i < list.size(); ++i) {
    EXPECT_TRUE(result.arms[i].cost.reads_like_dense()) << list[i].name;
    for (std::size_t t = 0; t < 40; ++t) {
      EXPECT_NEAR(result.arms[i].nll[t], result.full_nll[t], 2e-3) << list[i].name << ' ' << t;
    }
  }
}

TEST_F(BaselineArmsTest, TokensOfAStepDoNotChangeTheFigures) {
  const std::vector<Arm> list = arms(96);
  const PerplexityWindow many = run_window(*engine_, plan_, window(), list).value();
  plan_.rows = 1;
  const PerplexityWindow single = run_window(*engine_, plan_, window(), list).value();
  for (std::size_t i = 0; i < list.size(); ++i) {
    for (std::size_t t = 0; t < 40; ++t) {
      EXPECT_NEAR(many.arms[i].nll[t], single.arms[i].nll[t], 2e-3) << list[i].name << ' ' << t;
    }
  }
}

TEST_F(BaselineArmsTest, StoppedWindowsLeaveNothingBehind) {
  for (const std::int64_t last : {200, 320}) {
    EXPECT_FALSE(run_window(*engine_, plan_, window(), arms(96),
                            [&](std::int64_t done, std::int64_t) { return done < last; }));
    expect_nothing_left();
  }
  // The engine serves as before.
  const std::vector<Arm> list = {arms(4096).front()};
  EXPECT_TRUE(run_window(*engine_, plan_, window(), list));
}

TEST_F(BaselineArmsTest, QuestionsAndAnswersGoThroughTheBaseline) {
  AnswerRequest request;
  request.material.assign(tokens_.begin(), tokens_.begin() + 300);
  request.question.assign(tokens_.begin() + 300, tokens_.begin() + 320);
  request.max_tokens = 12;
  for (const std::int64_t budget : {96, 4096}) {
    std::vector<Arm> list = arms(budget);
    for (Arm& arm : list) arm.question.budget = 2 * budget;
    const Answers answers = answer(*engine_, request, list).value();
    for (std::size_t i = 0; i < list.size(); ++i) {
      EXPECT_EQ(answers.arms[i].question.counters.rows, 20) << list[i].name;
      EXPECT_EQ(answers.arms[i].cost().counters.attention.sparse_lists == 0, budget == 4096)
          << list[i].name;
      if (budget == 4096) {
        EXPECT_EQ(answers.arms[i].text, answers.full.text) << list[i].name;
      }
    }
    EXPECT_EQ(answers.arms.back().text, answers.arms.front().text);  // gather
    expect_nothing_left();
  }
}

}  // namespace
}  // namespace quest::eval
