// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
// The packaged model with full attention in the engine against libllama on the same tokens.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "model/engine_reader.h"
#include "model/libllama_oracle.h"

namespace quest::testing {
namespace {

constexpr std::int32_t kContext = 4096;
constexpr std::size_t kLongest = 3000;
constexpr std::size_t kCompared = 512;  ///< positions at the end of a long prompt
constexpr double kMaxKl = 1e-3;
constexpr double kMaxReencodedKl = 1e-2;

std::string text_of(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

/// The licence and the public headers of this project: prose and code, long enough.
std::string project_text() {
  const std::filesystem::path root = QUEST_SOURCE_DIR;
  std::string text = text_of(root / "LICENSE");
  std::vector<std::filesystem::path> headers;
  for (const auto& entry : std::filesystem::directory_iterator(root / "include" / "quest")) {
    headers.push_back(entry.path());
  }
  std::sort(headers.begin(), headers.end());
  for (const std::filesystem::path& header : headers) text += text_of(header);
  return text;
}

class PackagedModel : public ::testing::Test {
 protected:
  void SetUp() override {
    path_ = default_model_path();
    if (path_.empty()) GTEST_SKIP() << "the packaged model is not installed";
  }

  void load(bool reencode) {
    engine_ = make_engine(path_, dense_options(KvType::kF16, kContext), reencode);
    OracleOptions options;
    options.context = kContext;
    oracle_ = std::make_unique<LibllamaOracle>(path_, options);
    tokens_ = engine_->model().tokenizer().tokenize(project_text(), true, false);
    ASSERT_GE(tokens_.size(), kLongest + 32);
  }

  Agreement agreement_of_prompt(std::size_t length) {
    const std::span<const Token> prompt(tokens_.data(), length);
    ReadOptions options;
    options.first = length > kCompared ? length - kCompared : 0;
    oracle_->clear();
    const std::vector<float> expected = oracle_->read(prompt, options.first);
    const SequenceId sequence = engine_->cache().create();
    const std::vector<float> logits = read(*engine_, sequence, prompt, options);
    engine_->cache().release(sequence);
    return compare_logits(expected, logits, engine_->model().info().vocabulary);
  }

  /// Share of rows with the same top token that `rows` rows must reach: 99 %, but one row of a
  /// short prompt is already more than 1 %, so there all must agree.
  static void expect_close(const Agreement& agreement, double max_kl) {
    EXPECT_LE(agreement.mean_kl, max_kl);
    EXPECT_GE(agreement.top1, 0.99);
  }

  std::string path_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<LibllamaOracle> oracle_;
  std::vector<Token> tokens_;
};

TEST_F(PackagedModel, FullAttentionMatchesLibllama) {
  load(false);
  for (const std::size_t length : {1U, 15U, 16U, 17U, 500U, 3000U}) {
    SCOPED_TRACE(::testing::Message() << "prompt of " << length);
    const Agreement agreement = agreement_of_prompt(length);
    RecordProperty("kl_" + std::to_string(length), std::to_string(agreement.mean_kl));
    expect_close(agreement, kMaxKl);
  }
}

TEST_F(PackagedModel, ReencodedWeightsStayCloseToLibllama) {
  load(true);
  for (const std::size_t length : {1U, 15U, 16U, 17U, 500U, 3000U}) {
    SCOPED_TRACE(::testing::Message() << "prompt of " << length);
    const Agreement agreement = agreement_of_prompt(length);
    RecordProperty("kl_" + std::to_string(length), std::to_string(agreement.mean_kl));
    EXPECT_LE(agreement.mean_kl, kMaxReencodedKl);
  }
}

TEST_F(PackagedModel, TeacherForcedDecodeMatchesLibllama) {
  load(false);
  constexpr std::size_t kPrompt = 700;
  constexpr std::size_t kDecoded = 32;
  const std::span<const Token> all(tokens_.data(), kPrompt + kDecoded);
  const std::span<const Token> decoded = all.subspan(kPrompt);
  oracle_->read(all.first(kPrompt), kPrompt - 1);
  const SequenceId sequence = engine_->cache().create();
  ReadOptions prompt_options;
  prompt_options.first = kPrompt - 1;
  read(*engine_, sequence, all.first(kPrompt), prompt_options);
  std::vector<float> expected;
  for (const Token& token : decoded) {
    const std::vector<float> row = oracle_->read(std::span(&token, 1));
    expected.insert(expected.end(), row.begin(), row.end());
  }
  ReadOptions one_by_one;
  one_by_one.chunk = 1;
  const std::vector<float> logits = read(*engine_, sequence, decoded, one_by_one);
  const Agreement agreement = compare_logits(expected, logits, engine_->model().info().vocabulary);
  expect_close(agreement, kMaxKl);
}

}  // namespace
}  // namespace quest::testing
