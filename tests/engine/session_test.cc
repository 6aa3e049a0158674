// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
// Sessions, steps that must be refused, and text that arrives in pieces.
#include <gtest/gtest.h>

#include "engine/utf8_buffer.h"
#include "model/engine_reader.h"
#include "model/random_tokens.h"
#include "model/tiny_gguf.h"
#include "quest/error.h"

namespace quest::testing {
namespace {

class SessionTest : public ::testing::Test {
 protected:
  SessionTest() : file_(TinyModel()), tokens_(random_tokens(TinyModel().vocabulary, 200, 5)) {}

  std::unique_ptr<Engine> engine(std::int64_t context = 512) const {
    return make_engine(file_.path(), dense_options(KvType::kF32, context));
  }
  static GenerateOptions greedy(std::int64_t tokens) {
    GenerateOptions options;
    options.max_tokens = tokens;
    options.ignore_end = true;
    return options;
  }

  TemporaryFile file_;
  std::vector<Token> tokens_;
};

TEST_F(SessionTest, GenerationInTwoPartsEqualsOne) {
  const auto shared = engine();
  Session whole(*shared);
  whole.prefill(tokens_);
  const Generation once = whole.generate(greedy(12));
  Session parts(*shared);
  parts.prefill(tokens_);
  std::vector<Token> tokens = parts.generate(greedy(5)).tokens;
  const Generation rest = parts.generate(greedy(7));
  tokens.insert(tokens.end(), rest.tokens.begin(), rest.tokens.end());
  EXPECT_EQ(tokens, once.tokens);
  EXPECT_EQ(once.tokens.size(), 12U);
  EXPECT_EQ(once.steps, 11);
}

TEST_F(SessionTest, TheLastGeneratedTokenIsReadBeforeWhatFollows) {
  const auto shared = engine();
  Session session(*shared);
  session.prefill(tokens_);
  std::vector<Token> all = tokens_;
  const Generation generation = session.generate(greedy(3));
  all.insert(all.end(), generation.tokens.begin(), generation.tokens.end());
  all.push_back(7);
  session.prefill({&all.back(), 1});
  Session direct(*shared);
  direct.prefill(all);
  ASSERT_EQ(session.length(), static_cast<std::int64_t>(all.size()));
  ASSERT_EQ(session.logits().size(), direct.logits().size());
  for (std::size_t i = 0; i < session.logits().size(); ++i) {
    ASSERT_NEAR(session.logits()[i], direct.logits()[i], 1e-3) << "token " << i;
  }
}

TEST_F(SessionTest, GenerationEndsWhereTheContextIsFull) {
  const auto small = engine(208);
  Session session(*small);
  session.prefill(tokens_);
  const Generation generation = session.generate(greedy(100));
  EXPECT_EQ(generation.finish, FinishReason::kContextFull);
  EXPECT_EQ(generation.tokens.size(), 9U);  // eight that fit and one that follows them
  EXPECT_EQ(session.length(), 208);
}

TEST_F(SessionTest, GenerateNeedsSomethingRead) {
  const auto shared = engine();
  Session session(*shared);
  EXPECT_THROW(session.generate(greedy(1)), InvalidArgument);
  session.prefill(tokens_);
  session.truncate(10);
  EXPECT_THROW(session.generate(greedy(1)), InvalidArgument);
  EXPECT_EQ(session.length(), 10);
}

TEST_F(SessionTest, ProgressStopsReadingBetweenChunks) {
  EngineOptions options = dense_options();
  options.chunk = 50;
  const auto chunked = make_engine(file_.path(), options);
  Session session(*chunked);
  EXPECT_FALSE(session.prefill(tokens_, [](std::int64_t done, std::int64_t total) {
    EXPECT_EQ(total, 200);
    return done < 100;
  }));
  EXPECT_EQ(session.length(), 100);
}

TEST_F(SessionTest, BadStepsAreRefusedAndChangeNothing) {
  EngineOptions options = dense_options();
  options.chunk = 64;
  const auto shared = make_engine(file_.path(), options);
  const SequenceId a = shared->cache().create();
  const std::vector<Token> outside = {1, TinyModel().vocabulary};
  const std::vector<std::vector<StepRequest>> bad = {
      {},
      {{a, {}}},
      {{a + 100, std::span(tokens_).first(1)}},
      {{a, std::span(tokens_).first(65)}},
      {{a, outside}},
      {{a, std::span(tokens_).first(2)}, {a, std::span(tokens_).first(2)}},
  };
  for (std::size_t i = 0; i < bad.size(); ++i) {
    EXPECT_THROW(shared->step(bad[i]), InvalidArgument) << "case " << i;
    EXPECT_EQ(shared->cache().length(a), 0) << "case " << i;
  }
}

TEST_F(SessionTest, SetPolicyRulesTheStepsToCome) {
  const auto shared = engine();
  Session session(*shared);
  session.prefill(tokens_);
  const auto pages_of_one_step = [&] {
    shared->reset_counters();
    session.feed(std::span(tokens_).first(1));
    return shared->counters().attention.pages_read;
  };
  const std::int64_t lists = TinyModel().layers * TinyModel().kv_heads;
  EXPECT_EQ(pages_of_one_step(), 13 * lists);  // 201 tokens, full attention
  SelectionPolicy policy;
  policy.budget = 64;
  policy.dense_layers = 0;
  shared->set_policy(policy);
  EXPECT_EQ(pages_of_one_step(), 4 * lists);
  policy.budget = 8;
  EXPECT_THROW(shared->set_policy(policy), InvalidArgument);
  EXPECT_EQ(pages_of_one_step(), 4 * lists);
}

TEST(Utf8Buffer, HoldsBackUnfinishedCharacters) {
  Utf8Buffer buffer;
  EXPECT_EQ(buffer.push("a\xE2\x82"), "a");
  EXPECT_EQ(buffer.push("\xAC!"), "\xE2\x82\xAC!");
  EXPECT_EQ(buffer.push("\xF0\x9F\x98"), "");
  EXPECT_EQ(buffer.flush(), "\xF0\x9F\x98");
  EXPECT_EQ(buffer.flush(), "");
}

TEST(Utf8Buffer, PassesBytesThatAreNoTextThrough) {
  Utf8Buffer buffer;
  EXPECT_EQ(buffer.push("\x80\x80\x80\x80x"), "\x80\x80\x80\x80x");
  EXPECT_EQ(buffer.push("\xFF"), "\xFF");
}

}  // namespace
}  // namespace quest::testing
