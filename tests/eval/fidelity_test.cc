// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "quest/eval/fidelity.h"

#include <gtest/gtest.h>

#include <cmath>

#include "eval/head_probe.h"
#include "model/random_tokens.h"
#include "model/tiny_gguf.h"
#include "quest/kv_cache.h"

namespace quest::eval {
namespace {

constexpr std::int32_t kDim = 64;

/// Keys of two channels, values of one, in pages of eight tokens.
class HeadProbeTest : public ::testing::Test {
 protected:
  void fill(const std::vector<std::pair<float, float>>& keys, const std::vector<float>& values) {
    CacheShape shape;
    shape.num_layers = 1;
    shape.num_kv_heads = 1;
    shape.head_dim = kDim;
    shape.page_size = 8;
    shape.type = KvType::kF32;
    shape.num_pages = 4;
    cache_ = std::make_unique<KvCache>(shape);
    const SequenceId sequence = cache_->create();
    const auto count = static_cast<std::int64_t>(keys.size());
    cache_->reserve(sequence, count);
    for (std::int64_t t = 0; t < count; ++t) {
      float k[kDim] = {keys[static_cast<std::size_t>(t)].first,
                       keys[static_cast<std::size_t>(t)].second};
      float v[kDim] = {values[static_cast<std::size_t>(t)]};
      cache_->append(0, 0, sequence, t, 1, k, kDim, v, kDim);
      cache_->summarise(0, 0, sequence, t, 1);
    }
    pages_.load(cache_->layer(0), cache_->pages(sequence).data(), 0, count);
  }

  std::unique_ptr<KvCache> cache_;
  HeadPages pages_;
};

TEST_F(HeadProbeTest, FiguresMatchHandValues) {
  // Page 0: logits log 2 and seven of 0. Page 1: eight of 0 in a box that promises 2. The own page
  // holds one token with logit 0. Probabilities: 2/18, then 1/18 each.
  const float two = std::log(2.0F);
  std::vector<std::pair<float, float>> keys(17, {0, 0});
  keys[0] = {two, 0};
  keys[8] = {1, -1};
  keys[9] = {-1, 1};
  std::vector<float> values(17, 0);
  values[0] = 9;    // full output 1
  values[16] = 18;  // … + 1
  fill(keys, values);
  const float q[kDim] = {1, 1};
  float out[kDim] = {1, 1};
  const std::vector<std::int32_t> read = {1, 2};
  ProbedQuery query;
  query.q = q;
  query.out = out;
  query.read = read;
  query.top = 1;
  HeadFidelity sums;
  probe_query(pages_, query, sums);
  EXPECT_EQ(sums.tokens, 1);
  EXPECT_NEAR(sums.page_share, 2.0 / 3, 1e-12);
  EXPECT_NEAR(sums.mass, 9.0 / 18, 1e-6);  // pages 1 and 2
  EXPECT_EQ(sums.page_recall, 0);          // the largest logit is in page 0
  // Full output 2 in channel 0; the arm's has 1 in channels 0 and 1.
  EXPECT_NEAR(sums.cosine, 1 / std::sqrt(2.0), 1e-6);
  EXPECT_NEAR(sums.relative_l2, std::sqrt(2.0) / 2, 1e-6);
  // Bounds: log 2 (true), 2 (true 0); the own page is left out.
  EXPECT_EQ(sums.slack_pages, 2);
  EXPECT_NEAR(sums.slack, 2, 1e-6);
  EXPECT_EQ(sums.slack_bins[0], 1);
  EXPECT_EQ(sums.slack_bins[4], 1);
  EXPECT_EQ(sums.regret, 1);  // page 1 promises more than page 0
}

TEST_F(HeadProbeTest, TemperedScoreRemovesTheRegretButNotTheSlack) {
  const float two = std::log(2.0F);
  std::vector<std::pair<float, float>> keys(17, {0, 0});
  for (std::size_t i = 0; i < 8; ++i) keys[i] = {two, 0};
  keys[8] = {1, -1};
  keys[9] = {-1, 1};
  fill(keys, std::vector<float>(17, 1));
  const float q[kDim] = {1, 1};
  const float out[kDim] = {1};
  const std::vector<std::int32_t> read = {0, 2};
  ProbedQuery query;
  query.q = q;
  query.out = out;
  query.read = read;
  query.beta = 0.25F;  // page 0: log 2 = 0.69, page 1: 0.5
  query.top = 8;
  HeadFidelity sums;
  probe_query(pages_, query, sums);
  EXPECT_EQ(sums.regret, 0);
  EXPECT_NEAR(sums.slack, 2, 1e-6);
  EXPECT_EQ(sums.page_recall, 1);
  EXPECT_NEAR(sums.relative_l2, 0, 1e-6);
  EXPECT_NEAR(sums.mass, 17.0 / 25, 1e-6);
}

TEST_F(HeadProbeTest, EmptySlotsOfTheTailDoNotCount) {
  fill({{1, 0}, {2, 0}}, {3, 5});
  const float q[kDim] = {1};
  const double second = 1 / (1 + std::exp(-1.0));
  const float out[kDim] = {static_cast<float>(3 + 2 * second)};
  const std::vector<std::int32_t> read = {0};
  ProbedQuery query;
  query.q = q;
  query.out = out;
  query.read = read;
  query.top = 99;
  HeadFidelity sums;
  probe_query(pages_, query, sums);
  EXPECT_NEAR(sums.mass, 1, 1e-12);
  EXPECT_EQ(sums.page_recall, 1);
  EXPECT_NEAR(sums.relative_l2, 0, 1e-6);
  EXPECT_EQ(sums.slack_pages, 0);
}

TEST(SlackQuantile, IsTheUpperEndOfABin) {
  HeadFidelity head;
  head.slack_bins[0] = 50;
  head.slack_bins[3] = 45;
  head.slack_bins[kSlackBins - 1] = 5;
  head.slack_pages = 100;
  EXPECT_EQ(head.slack_quantile(0.5), 0.5);
  EXPECT_EQ(head.slack_quantile(0.95), 2);
  EXPECT_EQ(head.slack_quantile(0.99), kSlackBins * kSlackStep);
}

class FidelityTest : public ::testing::Test {
 protected:
  FidelityTest()
      : file_(testing::TinyModel()),
        tokens_(testing::random_tokens(testing::TinyModel().vocabulary, 320, 4)) {
    plan_.text.context = 300;
    plan_.text.tokens = 6;
    plan_.top = 8;
    EngineOptions options;
    options.context = Fidelity::cache_tokens(plan_, 16);
    options.threads = 2;
    options.kv_type = KvType::kF32;
    fidelity_ = std::make_unique<Fidelity>(Model::load(file_.path()), options);
  }

  FidelityWindow run(std::int64_t budget) {
    Arm arm;
    arm.policy.budget = budget;
    arm.policy.dense_layers = 0;
    return fidelity_
        ->run(plan_, std::span(tokens_).first(static_cast<std::size_t>(plan_.text.window_tokens())),
              arm)
        .value();
  }

  testing::TemporaryFile file_;
  std::vector<Token> tokens_;
  FidelityPlan plan_;
  std::unique_ptr<Fidelity> fidelity_;
};

TEST_F(FidelityTest, BudgetOfTheWholeContextIsFullAttention) {
  const FidelityWindow window = run(4096);
  for (const FidelityRun* mode : {&window.teacher_forced, &window.free_running}) {
    ASSERT_EQ(mode->heads.size(), 8U);  // 2 layers of 4 heads
    for (const HeadFidelity& head : mode->heads) {
      EXPECT_EQ(head.tokens, 6);
      EXPECT_EQ(head.page_share, 6);
      EXPECT_EQ(head.page_recall, 6);
      EXPECT_NEAR(head.mass, 6, 1e-9);
      EXPECT_NEAR(head.cosine, 6, 1e-5);
      EXPECT_LT(head.relative_l2, 6e-4);
    }
    for (const double kl : mode->kl) EXPECT_NEAR(kl, 0, 1e-5);
    EXPECT_EQ(mode->jaccard_tokens, (std::vector<std::int64_t>{0, 0}));
  }
  EXPECT_EQ(window.free_running.same_tokens, std::vector<std::int64_t>{6});
  EXPECT_TRUE(window.teacher_forced.same_tokens.empty());
}

TEST_F(FidelityTest, SmallBudgetLosesMassAndTheFiguresAgree) {
  const FidelityWindow window = run(64);
  const FidelityRun& forced = window.teacher_forced;
  EXPECT_EQ(forced.kl.size(), 6U);
  EXPECT_EQ(forced.cost.counters.rows, 6);
  EXPECT_FALSE(forced.cost.reads_like_dense());
  // 301 to 304 tokens fill 19 pages, 305 and 306 tokens 20; four are read.
  for (const HeadFidelity& head : forced.heads) {
    EXPECT_NEAR(head.page_share, 4 * 4 / 19.0 + 2 * 4 / 20.0, 1e-12);
    EXPECT_GT(head.mass, 0);
    EXPECT_LT(head.mass, 6);
    EXPECT_GT(head.relative_l2, 0.01);
    EXPECT_EQ(head.slack_pages, 4 * 18 + 2 * 19);
  }
  EXPECT_EQ(forced.jaccard_tokens, (std::vector<std::int64_t>{0, 6}));
  EXPECT_GT(forced.jaccard[1], 0);
  EXPECT_LE(forced.jaccard[1], 6);
}

TEST_F(FidelityTest, ProgressStopsTheWindow) {
  const auto result = fidelity_->run(
      plan_, std::span(tokens_).first(static_cast<std::size_t>(plan_.text.window_tokens())),
      full_arm(), [](std::int64_t done, std::int64_t total) {
        EXPECT_EQ(total, 312);
        return done < 303;
      });
  EXPECT_FALSE(result);
  EXPECT_EQ(fidelity_->engine().cache().free_pages(),
            fidelity_->engine().cache().shape().num_pages);
}

}  // namespace
}  // namespace quest::eval
