// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
// The packaged model with full attention in the engine against libllama on the same tokens.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "model/engine_reader.h"
#include "model/libllama_oracle.h"
#include "model/widened_gguf.h"

namespace quest::testing {
namespace {

constexpr std::int32_t kContext = 4096;
constexpr std::size_t kLongest = 3000;
constexpr std::size_t kCompared = 512;  ///< positions at the end of a long prompt
constexpr double kMaxKl = 1e-3;
constexpr double kMinTop1 = 0.99;
constexpr double kMaxQuantisedKl = 1e-2;
constexpr std::size_t kPrompts[] = {1, 15, 16, 17, 500, 3000};

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

/// Logits of a prompt's last positions, by either engine.
std::vector<float> prompt_logits(Engine& engine, std::span<const Token> prompt) {
  ReadOptions options;
  options.first = prompt.size() > kCompared ? prompt.size() - kCompared : 0;
  const SequenceId sequence = engine.cache().create();
  std::vector<float> logits = read(engine, sequence, prompt, options);
  engine.cache().release(sequence);
  return logits;
}

std::vector<float> prompt_logits(LibllamaOracle& oracle, std::span<const Token> prompt) {
  oracle.clear();
  return oracle.read(prompt, prompt.size() > kCompared ? prompt.size() - kCompared : 0);
}

OracleOptions oracle_options(bool flash_attention, bool extra_buffers = false) {
  OracleOptions options;
  options.extra_buffers = extra_buffers;
  options.context = kContext;
  options.flash_attention = flash_attention;
  return options;
}

class PackagedModel : public ::testing::Test {
 protected:
  void SetUp() override {
    path_ = default_model_path();
    if (path_.empty()) GTEST_SKIP() << "the packaged model is not installed";
    tokens_ = Tokenizer(path_).tokenize(project_text(), true, false);
    ASSERT_GE(tokens_.size(), kLongest + 32);
  }

  std::span<const Token> prompt(std::size_t length) const {
    return std::span<const Token>(tokens_).first(length);
  }

  std::string path_;
  std::vector<Token> tokens_;
};

/// The packaged model with its weights widened to float32: nothing is quantised on the way, so the
/// whole difference is the engines'.
class WidenedModel : public PackagedModel {
 protected:
  void SetUp() override {
    PackagedModel::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    wide_path_ = ::testing::TempDir() + "quest-widened-" + std::to_string(::getpid()) + ".gguf";
    write_widened_gguf(path_, wide_path_);
    engine_ = make_engine(wide_path_, dense_options(KvType::kF16, kContext));
    oracle_ = std::make_unique<LibllamaOracle>(wide_path_, oracle_options(false));
  }
  void TearDown() override { std::filesystem::remove(wide_path_); }

  std::string wide_path_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<LibllamaOracle> oracle_;
};

TEST_F(WidenedModel, FullAttentionMatchesLibllama) {
  for (const std::size_t length : kPrompts) {
    SCOPED_TRACE(::testing::Message() << "prompt of " << length);
    const Agreement agreement =
        compare_logits(prompt_logits(*oracle_, prompt(length)),
                       prompt_logits(*engine_, prompt(length)), oracle_->vocabulary());
    RecordProperty("kl_" + std::to_string(length), std::to_string(agreement.mean_kl));
    RecordProperty("top1_" + std::to_string(length), std::to_string(agreement.top1));
    EXPECT_LE(agreement.mean_kl, kMaxKl);
    EXPECT_GE(agreement.top1, kMinTop1);
  }
}

TEST_F(WidenedModel, TeacherForcedDecodeMatchesLibllama) {
  constexpr std::size_t kPrompt = 700;
  constexpr std::size_t kDecoded = 32;
  const std::span<const Token> decoded = prompt(kPrompt + kDecoded).subspan(kPrompt);
  oracle_->read(prompt(kPrompt), kPrompt - 1);
  const SequenceId sequence = engine_->cache().create();
  ReadOptions prompt_options;
  prompt_options.first = kPrompt - 1;
  read(*engine_, sequence, prompt(kPrompt), prompt_options);
  std::vector<float> expected;
  for (const Token& token : decoded) {
    const std::vector<float> row = oracle_->read(std::span(&token, 1));
    expected.insert(expected.end(), row.begin(), row.end());
  }
  ReadOptions one_by_one;
  one_by_one.chunk = 1;
  const std::vector<float> logits = read(*engine_, sequence, decoded, one_by_one);
  const Agreement agreement = compare_logits(expected, logits, oracle_->vocabulary());
  EXPECT_LE(agreement.mean_kl, kMaxKl);
  EXPECT_GE(agreement.top1, kMinTop1);
}

/// Mean KL over the rows of several prompts.
struct PooledKl {
  double sum = 0;
  std::size_t rows = 0;
  void add(const Agreement& agreement) {
    sum += agreement.mean_kl * static_cast<double>(agreement.rows);
    rows += agreement.rows;
  }
  double mean() const { return sum / static_cast<double>(rows); }
};

// The file as packaged holds 4-bit weights, for which ggml quantises activations to 8 bits: a
// difference in the last bit flips roundings, and libllama differs from itself (flash attention on
// and off) by more than 1e-3. Quest must be no further from it than it is from itself, within the
// noise of that comparison; all three use the same layouts of the weights and so the same kernels.
// With re-encoded weights Quest must stay within 1e-2.
TEST_F(PackagedModel, QuantisedWeightsAgreeAsLibllamaAgreesWithItself) {
  const auto engine = make_engine(path_, dense_options(KvType::kF16, kContext));
  const auto reencoded =
      make_engine(path_, dense_options(KvType::kF16, kContext), reencoded_types());
  LibllamaOracle plain(path_, oracle_options(false, true));
  LibllamaOracle flash(path_, oracle_options(true, true));
  PooledKl own;
  PooledKl stored;
  PooledKl fast;
  for (const std::size_t length : kPrompts) {
    const std::vector<float> expected = prompt_logits(plain, prompt(length));
    const auto compare = [&](const std::vector<float>& logits) {
      return compare_logits(expected, logits, plain.vocabulary());
    };
    own.add(compare(prompt_logits(flash, prompt(length))));
    stored.add(compare(prompt_logits(*engine, prompt(length))));
    const Agreement agreement = compare(prompt_logits(*reencoded, prompt(length)));
    EXPECT_LE(agreement.mean_kl, kMaxQuantisedKl) << "re-encoded, prompt of " << length;
    fast.add(agreement);
  }
  RecordProperty("libllama_against_itself", std::to_string(own.mean()));
  RecordProperty("quest_against_libllama", std::to_string(stored.mean()));
  RecordProperty("quest_reencoded_against_libllama", std::to_string(fast.mean()));
  EXPECT_LE(stored.mean(), 1.25 * own.mean());
  EXPECT_LE(stored.mean(), kMaxQuantisedKl);
}

}  // namespace
}  // namespace quest::testing
