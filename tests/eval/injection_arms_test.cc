// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
// Questions whose evidence is known, on a tiny model: arms that inject it, and what arms reach.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/engine_reader.h"
#include "model/random_tokens.h"
#include "model/tiny_gguf.h"
#include "quest/error.h"
#include "quest/eval/answer.h"

namespace quest::eval {
namespace {

constexpr std::int32_t kLayers = 4;

class InjectionArmsTest : public ::testing::Test {
 protected:
  InjectionArmsTest() : file_(four_layers()), baselines_(std::make_shared<Baselines>()) {
    EngineOptions options = testing::dense_options(KvType::kF32, 2400);
    options.attention = probe_.attention(baselines_->attention());
    engine_ = testing::make_engine(file_.path(), options);
    const std::vector<Token> tokens =
        testing::random_tokens(testing::TinyModel().vocabulary, 320, 3);
    request_.material.assign(tokens.begin(), tokens.begin() + 300);
    request_.question.assign(tokens.begin() + 300, tokens.end());
    request_.max_tokens = 6;
    request_.evidence = {{{110, 115}, {124, 129}}, {{205, 210}}};  // pages 6, 7; 7, 8; 12, 13
    request_.probe = &probe_;
  }

  static testing::TinyModel four_layers() {
    testing::TinyModel model;
    model.layers = kLayers;
    return model;
  }

  Arm quest() const {
    Arm arm;
    arm.name = "quest";
    arm.policy.budget = 96;
    arm.policy.dense_layers = 1;
    arm.question = arm.policy;
    return arm;
  }
  Arm with(BaselineKind kind, LayerRange layers = {}) const {
    Arm arm = quest();
    arm.baseline = {kind, 5, baselines_, layers};
    return arm;
  }
  std::vector<ArmAnswer> answers(const std::vector<Arm>& arms) {
    Answers result = answer(*engine_, request_, arms).value();
    EXPECT_FALSE(result.full.reach);
    return std::move(result.arms);
  }
  /// (layer, KV head) pairs.
  static std::int64_t lists_of(std::int32_t layers) {
    return std::int64_t{layers} * testing::TinyModel().kv_heads;
  }

  testing::TemporaryFile file_;
  EvidenceProbe probe_;
  std::shared_ptr<Baselines> baselines_;
  std::unique_ptr<Engine> engine_;
  AnswerRequest request_;
};

TEST_F(InjectionArmsTest, AnswersReadTheirPolicysPagesAndTheInjectedOnes) {
  const auto result = answers({quest(), with(BaselineKind::kInject, {0, kLayers - 1})});
  EXPECT_EQ(result[0].injected.pages, 0);
  EXPECT_GT(result[1].injected.pages, 0);
  EXPECT_EQ(result[1].injected.bytes,
            2 * result[1].injected.pages * engine_->cache().shape().page_bytes());
  for (const ArmAnswer& answer : result) {
    const EngineCounters counters = answer.cost().counters;
    // Of six pages a list; the dense layer reads what full attention reads.
    const std::int64_t sparse = counters.attention.sparse_lists;
    EXPECT_EQ(sparse, counters.rows * lists_of(kLayers - 1));
    std::int64_t dense = 0;
    for (std::int64_t row = 0; row < counters.rows; ++row) {
      dense += lists_of(1) * ((300 + row) / 16 + 1);
    }
    EXPECT_EQ(counters.attention.pages_read, 6 * sparse + dense + answer.injected.pages);
    EXPECT_LE(answer.injected.pages, 5 * sparse);
  }
}

TEST_F(InjectionArmsTest, InjectedLayersReachTheEvidenceInEveryList) {
  const auto result = answers({quest(), with(BaselineKind::kInject, {0, kLayers - 1}),
                               with(BaselineKind::kInject, {kLayers - 1, kLayers - 1}),
                               with(BaselineKind::kInject, {0, 0}), with(BaselineKind::kFixed)});
  for (const ArmAnswer& answer : result) {
    ASSERT_TRUE(answer.reach);
    EXPECT_EQ(answer.reach->lists, lists_of(kLayers - 1));  // the dense layer's do not count
    if (answer.reach->first_layer) {
      EXPECT_GE(*answer.reach->first_layer, 1);
    }
  }
  EXPECT_EQ(result[1].reach->hits, lists_of(kLayers - 1));
  EXPECT_EQ(result[1].reach->first_layer, 1);
  EXPECT_GE(result[2].reach->hits, lists_of(1));
  EXPECT_LE(result[2].reach->first_layer.value(), kLayers - 1);
  // The only layer to inject into reads everything already.
  EXPECT_EQ(result[3].injected.pages, 0);
  EXPECT_EQ(result[3].reach->hits, result[0].reach->hits);
  EXPECT_EQ(result[3].text, result[0].text);
  EXPECT_EQ(result[4].reach->hits, 0);  // pages 0, 1 and 16 to 19
  EXPECT_FALSE(result[4].reach->first_layer);
}

TEST_F(InjectionArmsTest, NothingIsSaidWhereNothingIsKnown) {
  const auto evicted = answers({with(BaselineKind::kTova)});
  EXPECT_FALSE(evicted[0].reach);  // tokens are gone, pages say too little
  request_.evidence.clear();
  const auto without = answers({quest(), with(BaselineKind::kInject, {0, kLayers - 1})});
  EXPECT_FALSE(without[0].reach);
  EXPECT_EQ(without[1].injected.pages, 0);
  EXPECT_EQ(without[1].text, without[0].text);
}

TEST_F(InjectionArmsTest, CoveringQuestionBudgetsLeaveNoListToLookAt) {
  Arm arm = quest();
  arm.question.budget = 4096;
  const auto result = answers({arm});
  ASSERT_TRUE(result[0].reach);
  EXPECT_EQ(result[0].reach->lists, 0);
}

TEST_F(InjectionArmsTest, EvidenceOutsideTheMaterialIsRefused) {
  for (const TokenRange range : {TokenRange{-1, 4}, TokenRange{5, 5}, TokenRange{290, 301}}) {
    request_.evidence = {{{110, 115}, range}};
    EXPECT_THROW(answer(*engine_, request_, std::vector<Arm>{quest()}), InvalidArgument);
  }
}

}  // namespace
}  // namespace quest::eval
