// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "quest/eval/passkey.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "model/tiny_gguf.h"
#include "quest/error.h"

namespace quest::eval {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class PasskeyPromptTest : public ::testing::Test {
 protected:
  PasskeyPromptTest()
      : file_(testing::TinyModel()),
        tokenizer_(file_.path()),
        haystack_(tokenizer_,
                  "One tree fell. Two birds sang! Was it late? \"Yes.\" They slept.\n\n"
                  "Nobody came") {}

  PasskeyTrial trial(PasskeyVariant variant, PagePlace place, double depth) const {
    return {3000, depth, place, variant, 7};
  }
  std::string text(const std::vector<Token>& tokens) const { return tokenizer_.detokenize(tokens); }

  testing::TemporaryFile file_;
  Tokenizer tokenizer_;
  Haystack haystack_;
};

constexpr PasskeyVariant kVariants[] = {PasskeyVariant::kPlain, PasskeyVariant::kDistractors,
                                        PasskeyVariant::kReversal, PasskeyVariant::kEvidence};

TEST_F(PasskeyPromptTest, HaystackIsCutIntoSentences) {
  EXPECT_EQ(haystack_.num_sentences(), 6);
  std::vector<std::int64_t> starts;
  const std::vector<Token> tokens = haystack_.take(4, 60, starts);
  EXPECT_EQ(tokens.size(), 60U);
  EXPECT_THAT(text(tokens), HasSubstr("They slept."));
  EXPECT_THAT(text(tokens), HasSubstr("One tree fell."));  // goes round
  EXPECT_THROW(Haystack(tokenizer_, " \n "), InvalidArgument);
}

TEST_F(PasskeyPromptTest, EveryPlaceDepthAndVariantIsHonoured) {
  for (const PasskeyVariant variant : kVariants) {
    for (const double depth : {0.0, 0.3, 1.0}) {
      const struct {
        PagePlace place;
        std::int64_t slot;
      } places[] = {{PagePlace::kStart, 0}, {PagePlace::kMiddle, 8}, {PagePlace::kEnd, 15}};
      for (const auto& [place, slot] : places) {
        SCOPED_TRACE(std::string(name_of(variant)) + " " + std::to_string(depth) + " " +
                     std::string(name_of(place)));
        const PasskeyPrompt prompt =
            passkey_prompt(tokenizer_, haystack_, trial(variant, place, depth), 16);
        EXPECT_EQ(prompt.material.size() + prompt.question.size(), 3000U);
        ASSERT_EQ(prompt.keys.size(), variant == PasskeyVariant::kEvidence ? 2U : 1U);
        const auto position = static_cast<std::size_t>(prompt.evidence.front().front().begin);
        EXPECT_EQ(position % 16, static_cast<std::size_t>(slot));
        // The first digit's token is where it is said to be.
        EXPECT_EQ(tokenizer_.piece(prompt.material[position]), prompt.keys.front().substr(0, 1));
        const double reached =
            static_cast<double>(position) / static_cast<double>(prompt.material.size());
        EXPECT_NEAR(reached, depth, 0.3);
        for (std::size_t i = 0; i < prompt.keys.size(); ++i) {
          ASSERT_EQ(prompt.evidence[i].size(), 2U);  // each sentence tells its key twice
          for (const TokenRange& mention : prompt.evidence[i]) {
            EXPECT_EQ(text({prompt.material.begin() + mention.begin,
                            prompt.material.begin() + mention.end}),
                      prompt.keys[i]);
          }
        }
        for (const std::string& key : prompt.keys) {
          EXPECT_THAT(text(prompt.material), HasSubstr(key));
          EXPECT_THAT(text(prompt.question), Not(HasSubstr(key)));
        }
      }
    }
  }
}

TEST_F(PasskeyPromptTest, EqualTrialsMakeEqualPromptsAndSeedsDiffer) {
  const PasskeyTrial one = trial(PasskeyVariant::kPlain, PagePlace::kStart, 0.5);
  PasskeyTrial other = one;
  other.seed = 8;
  const PasskeyPrompt a = passkey_prompt(tokenizer_, haystack_, one, 16);
  EXPECT_EQ(a.material, passkey_prompt(tokenizer_, haystack_, one, 16).material);
  EXPECT_NE(a.keys, passkey_prompt(tokenizer_, haystack_, other, 16).keys);
}

TEST_F(PasskeyPromptTest, DistractorsDifferFromTheKeyInOneOrTwoDigits) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    PasskeyTrial t = trial(PasskeyVariant::kDistractors, PagePlace::kStart, 0.5);
    t.seed = seed;
    const PasskeyPrompt prompt = passkey_prompt(tokenizer_, haystack_, t, 16);
    const std::string key = prompt.keys.front();
    const auto numbers = numbers_in(text(prompt.material));
    const std::set<std::string> distinct(numbers.begin(), numbers.end());
    EXPECT_GE(distinct.size(), 3U);
    for (const std::string& number : distinct) {
      ASSERT_EQ(number.size(), key.size());
      int differing = 0;
      for (std::size_t i = 0; i < key.size(); ++i) differing += number[i] != key[i];
      EXPECT_LE(differing, 2) << number << " " << key;
      EXPECT_NE(number.front(), '0');
    }
    EXPECT_EQ(std::count(numbers.begin(), numbers.end(), key), 2);
  }
}

TEST_F(PasskeyPromptTest, TooShortALengthIsRefusedWithTheOneThatFits) {
  PasskeyTrial t = trial(PasskeyVariant::kPlain, PagePlace::kStart, 0.5);
  t.length = 20;
  try {
    passkey_prompt(tokenizer_, haystack_, t, 16);
    FAIL() << "accepted";
  } catch (const InvalidArgument& error) {
    const std::string message = error.what();
    t.length = std::stoll(message.substr(message.rfind(' ') + 1));
    EXPECT_NO_THROW(passkey_prompt(tokenizer_, haystack_, t, 16)) << message;
  }
}

ArmAnswer answered(const std::string& text, FinishReason finish) {
  ArmAnswer answer;
  answer.text = text;
  answer.finish = finish;
  return answer;
}

TEST(PasskeyClass, ComparesTheFirstNumbers) {
  const std::vector<std::string> one = {"12345"};
  const std::vector<std::string> two = {"12345", "678"};
  constexpr auto kEnd = FinishReason::kEndOfText;
  EXPECT_EQ(classify(answered(" 12345.", kEnd), one), AnswerClass::kHit);
  EXPECT_EQ(classify(answered("no number", kEnd), one), AnswerClass::kMiss);
  EXPECT_EQ(classify(answered(" 1234", kEnd), one), AnswerClass::kMiss);
  EXPECT_EQ(classify(answered(" 123456", kEnd), one), AnswerClass::kMiss);
  EXPECT_EQ(classify(answered("99 12345", kEnd), one), AnswerClass::kMiss);
  EXPECT_EQ(classify(answered("12345 and 678.", kEnd), two), AnswerClass::kHit);
  EXPECT_EQ(classify(answered("678 and 12345.", kEnd), two), AnswerClass::kMiss);
  EXPECT_EQ(classify(answered("12345 only", kEnd), two), AnswerClass::kMiss);
}

TEST(PasskeyClass, AnswersCutByTheLimitAreTheirOwnClass) {
  const std::vector<std::string> key = {"12345"};
  constexpr auto kCut = FinishReason::kLength;
  EXPECT_EQ(classify(answered("well, let me think", kCut), key), AnswerClass::kTruncated);
  EXPECT_EQ(classify(answered("it is 123", kCut), key), AnswerClass::kTruncated);
  EXPECT_EQ(classify(answered("it is 129", kCut), key), AnswerClass::kMiss);
  EXPECT_EQ(classify(answered("it is 12345", kCut), key), AnswerClass::kHit);
}

TEST(PasskeyClass, AnAnswerIsCompleteWhenItsNumbersHaveEnded) {
  PasskeyPrompt prompt;
  prompt.keys = {"12", "34"};
  const AnswerRequest request = passkey_request(prompt, 9);
  EXPECT_FALSE(request.complete("12"));
  EXPECT_FALSE(request.complete("12 and 34"));
  EXPECT_TRUE(request.complete("12 and 34."));
  EXPECT_THAT(numbers_in("a1b22c333"), ElementsAre("1", "22", "333"));
}

TEST(PasskeyClass, RequestsNameTheEvidence) {
  PasskeyPrompt prompt;
  prompt.evidence = {{{3, 5}, {9, 11}}, {{20, 22}}};
  const AnswerRequest request = passkey_request(prompt, 9);
  ASSERT_EQ(request.evidence.size(), 2U);
  EXPECT_EQ(request.evidence[0][1].begin, 9);
  EXPECT_EQ(request.evidence[1][0].end, 22);
}

}  // namespace
}  // namespace quest::eval
