// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
// LongBench's scores against values computed by hand; the package `rouge` 1.0.1 gives the same.
#include "quest/eval/answer_metrics.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace quest::eval {
namespace {

TEST(NormalisedAnswer, DropsCaseAsciiPunctuationArticlesAndSpace) {
  EXPECT_EQ(normalised_answer("The  U.S.A.'s\tanswer - an Apple, a day!"), "usas answer apple day");
  EXPECT_EQ(normalised_answer("theatre another _a_"), "theatre another");
  EXPECT_EQ(normalised_answer("CAF\u00c9 \u00a0x"), "caf\u00e9 x");
  EXPECT_EQ(normalised_answer(""), "");
}

TEST(NormalisedAnswer, OtherPunctuationStaysAndSetsArticlesApart) {
  EXPECT_EQ(normalised_answer("\u201ca\u201d x\u2019the"), "\u201c \u201d x\u2019");
}

TEST(NormalisedAnswer, KeepsBytesThatAreNoText) {
  EXPECT_EQ(normalised_answer("A \xff\xc3 B"), "\xff\xc3 b");
}

TEST(QaF1, CountsCommonWords) {
  // cat sat on mat / cat on mat: 3 common of 4 and of 3.
  EXPECT_DOUBLE_EQ(qa_f1("The cat sat on the mat.", "a cat on a mat"), 2 * 0.75 / 1.75);
  EXPECT_DOUBLE_EQ(qa_f1("Paris", "paris."), 1);
  EXPECT_DOUBLE_EQ(qa_f1("London", "Paris"), 0);
}

TEST(QaF1, CountsAWordAsOftenAsBothHaveIt) {
  // red red blue / red green: 1 common of 3 and of 2.
  EXPECT_DOUBLE_EQ(qa_f1("red red blue", "red green"), 2 * (1.0 / 3) * 0.5 / (1.0 / 3 + 0.5));
  EXPECT_DOUBLE_EQ(qa_f1("no no", "no no no"), 2 * 1 * (2.0 / 3) / (1 + 2.0 / 3));
}

TEST(QaF1, NothingLeftToCompareScoresZero) {
  EXPECT_EQ(qa_f1("", "x"), 0);
  EXPECT_EQ(qa_f1("x", ""), 0);
  EXPECT_EQ(qa_f1("the", "the"), 0);
}

struct RougeCase {
  const char* answer;
  const char* truth;
  double overlap;  ///< distinct words in common subsequences
  double given;    ///< distinct words of the answer
  double wanted;   ///< distinct words of the truth
};

TEST(RougeL, MatchesHandComputedCases) {
  const RougeCase cases[] = {
      {"the cat sat", "the cat ran", 2, 3, 3},
      {"a b c d", "d c b a", 1, 4, 4},
      // Two sentences of the answer share w1 w2 and w1 w3 w5 with the truth.
      {"w1 w2 w6 w7 w8. w1 w3 w8 w9 w5", "w1 w2 w3 w4 w5", 4, 8, 5},
      // Between the full stops lies a sentence of one empty word.
      {"x. .y", "x y", 2, 3, 2},
      {"a b. c", "b c. d", 2, 3, 3},
      {"the the the", "the", 1, 1, 1},  // sets of words: repetition does not count
      {"A a", "a", 1, 2, 1},            // case does
      {"one  two\nthree. ", "three. one two", 3, 4, 3}};
  for (const RougeCase& c : cases) {
    const double precision = c.overlap / c.given;
    const double recall = c.overlap / c.wanted;
    EXPECT_DOUBLE_EQ(rouge_l(c.answer, c.truth),
                     2 * (precision * recall / (precision + recall + 1e-8)))
        << c.answer << " / " << c.truth;
  }
  EXPECT_NEAR(rouge_l("w1 w2 w6 w7 w8. w1 w3 w8 w9 w5", "w1 w2 w3 w4 w5"), 0.6153846106508877,
              1e-15);
}

TEST(RougeL, EmptyTextsScoreZero) {
  EXPECT_EQ(rouge_l("", "a"), 0);
  EXPECT_EQ(rouge_l("a", ""), 0);
  EXPECT_EQ(rouge_l("a", "..."), 0);
}

TEST(AnswerScore, TakesTheBestAcceptedAnswer) {
  const std::vector<std::string> truths = {"something else", "fifty-five", "55"};
  EXPECT_DOUBLE_EQ(answer_score(AnswerMetric::kQaF1, "55.", truths), 1);
  EXPECT_NEAR(answer_score(AnswerMetric::kRougeL, "something new", truths), 0.5, 1e-7);
  EXPECT_EQ(answer_score(AnswerMetric::kQaF1, "x", {}), 0);
}

}  // namespace
}  // namespace quest::eval
