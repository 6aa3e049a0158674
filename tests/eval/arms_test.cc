// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
// Perplexity and answers of several arms on a tiny model: nothing but the pages read may differ.
#include <gtest/gtest.h>

#include <cmath>

#include "model/engine_reader.h"
#include "model/random_tokens.h"
#include "model/tiny_gguf.h"
#include "quest/error.h"
#include "quest/eval/answer.h"
#include "quest/eval/perplexity.h"

namespace quest::eval {
namespace {

Arm sparse_arm(std::int64_t budget) {
  Arm arm;
  arm.name = std::to_string(budget);
  arm.policy.budget = budget;
  arm.policy.dense_layers = 0;
  arm.question = arm.policy;
  return arm;
}

class ArmsTest : public ::testing::Test {
 protected:
  ArmsTest()
      : file_(testing::TinyModel()),
        tokens_(testing::random_tokens(testing::TinyModel().vocabulary, 400, 3)),
        engine_(testing::make_engine(file_.path(), testing::dense_options(KvType::kF32, 1200))) {
    plan_.context = 300;
    plan_.tokens = 48;
    plan_.rows = 10;
  }

  PerplexityWindow window(std::span<const Arm> arms) {
    auto result =
        run_window(*engine_, plan_,
                   std::span(tokens_).first(static_cast<std::size_t>(plan_.window_tokens())), arms);
    return result.value();
  }

  testing::TemporaryFile file_;
  std::vector<Token> tokens_;
  std::unique_ptr<Engine> engine_;
  PerplexityPlan plan_;
};

TEST_F(ArmsTest, DenseArmEqualsFullAttentionAndReadsLikeIt) {
  const Arm arms[] = {full_arm()};
  const PerplexityWindow windows[] = {window(arms)};
  const PerplexitySummary summary = summarise(windows, 0, plan_, 4);
  EXPECT_EQ(summary.relative_increase, 0);
  EXPECT_EQ(summary.kl, 0);
  EXPECT_EQ(summary.agreement, 1);
  EXPECT_EQ(summary.tokens, 48);
  EXPECT_EQ(summary.cost.bytes_share(), 1);
  EXPECT_TRUE(summary.cost.reads_like_dense());
  EXPECT_EQ(summary.cost.fallback_lists, 0);  // the policy asks for nothing else
}

TEST_F(ArmsTest, BudgetOfTheWholeContextEqualsFullAttentionAndIsAllFallback) {
  const Arm arms[] = {sparse_arm(4096)};
  const PerplexityWindow windows[] = {window(arms)};
  const PerplexitySummary summary = summarise(windows, 0, plan_, 4);
  EXPECT_NEAR(summary.relative_increase, 0, 1e-5);
  EXPECT_TRUE(summary.cost.reads_like_dense());
  const std::int64_t lists =
      48 * testing::TinyModel().layers * std::int64_t{testing::TinyModel().kv_heads};
  EXPECT_EQ(summary.cost.fallback_lists, lists);
}

TEST_F(ArmsTest, SparseArmReadsWhatItsBudgetAllows) {
  const Arm arms[] = {sparse_arm(64), sparse_arm(128)};
  const PerplexityWindow windows[] = {window(arms)};
  const PerplexitySummary small = summarise(windows, 0, plan_, 4);
  const PerplexitySummary large = summarise(windows, 1, plan_, 4);
  EXPECT_EQ(small.cost.counters.rows, 48);
  EXPECT_FALSE(small.cost.reads_like_dense());
  EXPECT_EQ(small.cost.fallback_lists, 0);
  const std::int64_t lists =
      48 * testing::TinyModel().layers * std::int64_t{testing::TinyModel().kv_heads};
  EXPECT_EQ(small.cost.counters.attention.pages_read, 4 * lists);
  EXPECT_EQ(large.cost.counters.attention.pages_read, 8 * lists);
  EXPECT_GT(small.kl, 0);
  EXPECT_EQ(small.perplexity_full, large.perplexity_full);
}

TEST_F(ArmsTest, TokensPerStepDoNotChangeTheFigures) {
  const Arm arms[] = {sparse_arm(96)};
  const PerplexityWindow many = window(arms);
  plan_.rows = 1;
  const PerplexityWindow single = window(arms);
  for (std::size_t i = 0; i < 48; ++i) {
    EXPECT_NEAR(many.full_nll[i], single.full_nll[i], 2e-3) << "token " << i;
    EXPECT_NEAR(many.arms[0].nll[i], single.arms[0].nll[i], 2e-3) << "token " << i;
  }
}

TEST_F(ArmsTest, PerplexityMatchesAPlainSession) {
  const PerplexityWindow result = window({});
  Session session(*engine_);
  session.prefill(std::span(tokens_).first(300));
  double sum = 0;
  for (std::size_t i = 300; i < 348; ++i) {
    session.prefill(std::span(tokens_).subspan(i, 1));
    double total = 0;
    const auto logits = session.logits();
    for (const float logit : logits) total += std::exp(double{logit});
    const double nll = std::log(total) - logits[static_cast<std::size_t>(tokens_[i + 1])];
    EXPECT_NEAR(result.full_nll[i - 300], nll, 2e-3) << "token " << i;
    sum += nll;
  }
  EXPECT_NEAR(mean(result.full_nll), sum / 48, 1e-3);
}

TEST_F(ArmsTest, PositionsCoverTheTokensOnce) {
  PerplexityWindow two;
  two.full_nll = {1, 1, 3, 3};
  two.arms.resize(1);
  two.arms[0].nll = {2, 2, 3, 3};
  two.arms[0].kl = {0.5, 0.5, 0, 0};
  two.arms[0].agrees = {0, 1, 1, 1};
  PerplexityPlan plan;
  plan.context = 100;
  plan.tokens = 4;
  const PerplexityWindow windows[] = {two};
  const PerplexitySummary summary = summarise(windows, 0, plan, 2);
  EXPECT_DOUBLE_EQ(summary.perplexity_full, std::exp(2.0));
  EXPECT_DOUBLE_EQ(summary.perplexity, std::exp(2.5));
  EXPECT_DOUBLE_EQ(summary.relative_increase, std::exp(2.5) / std::exp(2.0) - 1);
  EXPECT_DOUBLE_EQ(summary.kl, 0.25);
  EXPECT_DOUBLE_EQ(summary.agreement, 0.75);
  ASSERT_EQ(summary.positions.size(), 2U);
  EXPECT_EQ(summary.positions[0].first, 100);
  EXPECT_EQ(summary.positions[0].last, 102);
  EXPECT_DOUBLE_EQ(summary.positions[0].perplexity, std::exp(2.0));
  EXPECT_EQ(summary.positions[1].last, 104);
  EXPECT_DOUBLE_EQ(summary.positions[1].perplexity, std::exp(3.0));
}

TEST_F(ArmsTest, StoppedWindowLeavesTheCacheEmptyAndThePolicyAsItWas) {
  const std::int64_t free_pages = engine_->cache().free_pages();
  const Arm arms[] = {sparse_arm(64)};
  for (const std::int64_t last : {200, 320}) {
    const auto result = run_window(
        *engine_, plan_, std::span(tokens_).first(static_cast<std::size_t>(plan_.window_tokens())),
        arms, [&](std::int64_t done, std::int64_t) { return done < last; });
    EXPECT_FALSE(result) << last;
  }
  EXPECT_EQ(engine_->cache().free_pages(), free_pages);
  EXPECT_TRUE(engine_->options().policy.dense);
}

TEST_F(ArmsTest, WindowsSpreadWithoutPredictingATokenTwice) {
  EXPECT_EQ(window_starts(1000, 349, 48, 1), std::vector<std::int64_t>{0});
  const auto starts = window_starts(349 + 96, 349, 48, 3);
  EXPECT_EQ(starts, (std::vector<std::int64_t>{0, 48, 96}));
  EXPECT_THROW(window_starts(349 + 95, 349, 48, 3), InvalidArgument);
  EXPECT_THROW(window_starts(348, 349, 48, 1), InvalidArgument);
}

TEST_F(ArmsTest, AnswersOfCoveringBudgetsEqualFullAttention) {
  AnswerRequest request;
  request.material.assign(tokens_.begin(), tokens_.begin() + 300);
  request.question.assign(tokens_.begin() + 300, tokens_.begin() + 320);
  request.max_tokens = 12;
  const Arm arms[] = {sparse_arm(4096), sparse_arm(64)};
  const auto answers = answer(*engine_, request, arms);
  ASSERT_TRUE(answers);
  EXPECT_EQ(answers->arms[0].text, answers->full.text);
  EXPECT_TRUE(answers->arms[0].cost().reads_like_dense());
  EXPECT_FALSE(answers->arms[1].cost().reads_like_dense());
  EXPECT_EQ(answers->arms[1].question.counters.rows, 20);

  Session session(*engine_);
  std::vector<Token> whole = request.material;
  whole.insert(whole.end(), request.question.begin(), request.question.end());
  session.prefill(whole);
  GenerateOptions options;
  options.max_tokens = 12;
  EXPECT_EQ(session.generate(options).text, answers->full.text);
}

TEST_F(ArmsTest, AnswersStopWhenComplete) {
  AnswerRequest request;
  request.material.assign(tokens_.begin(), tokens_.begin() + 300);
  request.question.assign(tokens_.begin() + 300, tokens_.begin() + 320);
  request.max_tokens = 12;
  request.complete = [](std::string_view) { return true; };
  const auto answers = answer(*engine_, request, {});
  ASSERT_TRUE(answers);
  EXPECT_FALSE(answers->full.cut());
  request.question.clear();
  EXPECT_THROW(answer(*engine_, request, {}), InvalidArgument);
}

TEST_F(ArmsTest, InterruptedAnswersGiveNothing) {
  AnswerRequest request;
  request.material.assign(tokens_.begin(), tokens_.begin() + 300);
  request.question.assign(tokens_.begin() + 300, tokens_.begin() + 320);
  request.max_tokens = 12;
  const std::int64_t free_pages = engine_->cache().free_pages();
  int calls = 0;
  EXPECT_FALSE(
      answer(*engine_, request, {}, [&](std::int64_t, std::int64_t) { return ++calls < 4; }));
  EXPECT_EQ(engine_->cache().free_pages(), free_pages);
}

TEST_F(ArmsTest, ForkedSessionGoesOnAlone) {
  Session session(*engine_);
  session.prefill(std::span(tokens_).first(100));
  GenerateOptions options;
  options.max_tokens = 6;
  options.ignore_end = true;
  std::vector<Token> first;
  {
    Session fork = session.fork();
    EXPECT_EQ(fork.length(), 100);
    first = fork.generate(options).tokens;
  }
  EXPECT_EQ(session.length(), 100);
  EXPECT_EQ(session.generate(options).tokens, first);
}

}  // namespace
}  // namespace quest::eval
