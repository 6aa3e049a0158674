// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "quest/eval/longbench.h"

#include <gtest/gtest.h>

#include "model/tiny_gguf.h"
#include "quest/error.h"

namespace quest::eval {
namespace {

class LongBenchPromptTest : public ::testing::Test {
 protected:
  LongBenchPromptTest() : file_(testing::TinyModel()), tokenizer_(file_.path()) {
    material_ = tokenizer_.tokenize(sample_.context, true, false);
    question_ = tokenizer_.tokenize(sample_.query, false, false);
    whole_ = static_cast<std::int64_t>(material_.size() + question_.size());
  }

  testing::TemporaryFile file_;
  Tokenizer tokenizer_;
  LongBenchSample sample_{
      "s", "set", AnswerMetric::kQaF1, "abcdefghijklmnopqrstuvwxyz", "0123456789", {"x"}, 0};
  std::vector<Token> material_;
  std::vector<Token> question_;
  std::int64_t whole_ = 0;
};

TEST_F(LongBenchPromptTest, FittingPromptIsWhole) {
  const LongBenchPrompt prompt = longbench_prompt(tokenizer_, sample_, whole_, 7);
  EXPECT_EQ(prompt.request.material, material_);
  EXPECT_EQ(prompt.request.question, question_);
  EXPECT_EQ(prompt.request.max_tokens, 7);
  EXPECT_EQ(prompt.tokens, whole_);
  EXPECT_EQ(prompt.left_out, 0);
}

TEST_F(LongBenchPromptTest, LongPromptLosesItsMiddle) {
  ASSERT_GT(question_.size(), 4U);
  const std::int64_t limit = whole_ - 5;
  const auto half = static_cast<std::size_t>(limit / 2);
  const LongBenchPrompt prompt = longbench_prompt(tokenizer_, sample_, limit, 7);
  std::vector<Token> all = material_;
  all.insert(all.end(), question_.begin(), question_.end());
  std::vector<Token> expected(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(half));
  expected.insert(expected.end(), all.end() - static_cast<std::ptrdiff_t>(half), all.end());
  std::vector<Token> got = prompt.request.material;
  got.insert(got.end(), prompt.request.question.begin(), prompt.request.question.end());
  EXPECT_EQ(got, expected);
  EXPECT_EQ(prompt.request.question, question_);  // the question is what stays
  EXPECT_EQ(prompt.left_out, whole_ - static_cast<std::int64_t>(2 * half));
}

TEST_F(LongBenchPromptTest, QuestionLongerThanHalfKeepsItsEnd) {
  const auto limit = static_cast<std::int64_t>(question_.size());
  const LongBenchPrompt prompt = longbench_prompt(tokenizer_, sample_, limit, 7);
  const std::int64_t half = limit / 2;
  EXPECT_EQ(prompt.request.question, std::vector<Token>(question_.end() - half, question_.end()));
  EXPECT_EQ(prompt.request.material,
            std::vector<Token>(material_.begin(), material_.begin() + half));
}

TEST_F(LongBenchPromptTest, NoRoomAtAllIsRefused) {
  EXPECT_THROW(longbench_prompt(tokenizer_, sample_, 1, 7), InvalidArgument);
  EXPECT_THROW(longbench_prompt(tokenizer_, sample_, -40, 7), InvalidArgument);
}

double score_of(const std::string& dataset, std::string_view answer) {
  LongBenchSample sample;
  sample.dataset = dataset;
  sample.answers.emplace_back("Tokyo");
  return longbench_score(sample, answer);
}

TEST(LongBenchScore, FewShotSetsScoreTheFirstLine) {
  EXPECT_DOUBLE_EQ(score_of("triviaqa", "\n\nTokyo\nQuestion: and more"), 1);
  EXPECT_DOUBLE_EQ(score_of("hotpotqa", "\n\nTokyo\nQuestion: and more"), 2 * 0.25 / 1.25);
  EXPECT_EQ(scored_part("triviaqa", "\n\n"), "");
}

TEST(LongBenchScore, AnswerLimitsAreLongBenchsOwn) {
  EXPECT_EQ(usual_answer_tokens("hotpotqa", AnswerMetric::kQaF1), 32);
  EXPECT_EQ(usual_answer_tokens("qasper", AnswerMetric::kQaF1), 128);
  EXPECT_EQ(usual_answer_tokens("gov_report", AnswerMetric::kRougeL), 512);
  EXPECT_EQ(usual_answer_tokens("mine", AnswerMetric::kQaF1), 64);
}

}  // namespace
}  // namespace quest::eval
