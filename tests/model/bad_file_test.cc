// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
// Files that the loader must refuse with an error that names file and field, never with a crash.
// Every load runs in a child process, so that an abort of any library is seen as one.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <random>

#include "model/bad_files.h"
#include "quest/error.h"
#include "quest/model.h"

namespace quest::testing {
namespace {

/// How a load ended.
struct Outcome {
  enum Kind { kLoaded, kFileError, kUnsupported, kOtherError, kCrashed } kind = kCrashed;
  std::string message;
};

Outcome load_here(const std::string& path) {
  ModelOptions options;
  options.threads = 1;
  try {
    Model::load(path, options);
    return {Outcome::kLoaded, ""};
  } catch (const FileError& error) {
    return {Outcome::kFileError, error.what()};
  } catch (const UnsupportedModel& error) {
    return {Outcome::kUnsupported, error.what()};
  } catch (const std::exception& error) {
    return {Outcome::kOtherError, error.what()};
  }
}

/// Loads in a child process that reports its outcome through a pipe.
Outcome load(const std::string& path) {
  std::array<int, 2> ends{};
  if (::pipe(ends.data()) != 0) return {};
  const pid_t child = ::fork();
  if (child == 0) {
    const Outcome outcome = load_here(path);
    const std::string report = static_cast<char>('0' + outcome.kind) + outcome.message;
    const ssize_t written = ::write(ends[1], report.data(), report.size());
    ::_exit(written == static_cast<ssize_t>(report.size()) ? 0 : 1);
  }
  ::close(ends[1]);
  std::string report;
  std::array<char, 4096> part{};
  for (ssize_t n = 0; (n = ::read(ends[0], part.data(), part.size())) > 0;) {
    report.append(part.data(), static_cast<std::size_t>(n));
  }
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  if (!WIFEXITED(status) || report.empty()) return {};
  return {static_cast<Outcome::Kind>(report[0] - '0'), report.substr(1)};
}

Outcome load(const Bytes& bytes) {
  const TemporaryFile file(bytes);
  Outcome outcome = load(file.path());
  if (outcome.kind == Outcome::kFileError || outcome.kind == Outcome::kUnsupported) {
    EXPECT_NE(outcome.message.find(file.path()), std::string::npos) << outcome.message;
  }
  return outcome;
}

void expect_refused(const std::vector<BadFile>& files) {
  for (const BadFile& file : files) {
    SCOPED_TRACE(file.name);
    const Outcome outcome = load(file.bytes);
    EXPECT_EQ(outcome.kind, file.unsupported ? Outcome::kUnsupported : Outcome::kFileError)
        << outcome.message;
    EXPECT_NE(outcome.message.find(file.field), std::string::npos)
        << "'" << outcome.message << "' does not name " << file.field;
  }
}

bool is_refusal(const Outcome& outcome) {
  return outcome.kind == Outcome::kFileError || outcome.kind == Outcome::kUnsupported;
}

TEST(BadFile, MissingFileAndDirectoryAreNamed) {
  for (const char* path : {"/no/such/file.gguf", "/"}) {
    const Outcome outcome = load(std::string(path));
    EXPECT_EQ(outcome.kind, Outcome::kFileError) << outcome.message;
    EXPECT_NE(outcome.message.find(path), std::string::npos) << outcome.message;
  }
}

TEST(BadFile, MalformedContainersAreRefused) { expect_refused(bad_containers()); }

TEST(BadFile, FilesThatMakeNoModelAreRefused) { expect_refused(bad_models()); }

TEST(BadFile, TruncationsAreRefused) {
  const Bytes good = tiny_gguf_bytes(good_model());
  const std::size_t metadata = data_offset(good);
  std::vector<std::size_t> sizes = {0,
                                    1,
                                    3,
                                    4,
                                    7,
                                    8,
                                    15,
                                    16,
                                    23,
                                    24,
                                    25,
                                    32,
                                    offset_behind(good, "tokenizer.ggml.tokens") + 100,
                                    offset_behind(good, "token_embd.weight") + 3,
                                    metadata - 33,
                                    metadata,
                                    metadata + 1,
                                    good.size() - 33};
  std::mt19937_64 random(12);
  for (int i = 0; i < 200; ++i) sizes.push_back(random() % (good.size() - 32));
  for (const std::size_t size : sizes) {
    const Bytes cut(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(size));
    const Outcome outcome = load(cut);
    EXPECT_EQ(outcome.kind, Outcome::kFileError) << "cut at " << size << ": " << outcome.message;
  }
}

TEST(BadFile, RandomFlipsInTheMetadataNeverCrashTheLoader) {
  constexpr std::uint32_t kSeeds = 2000;
  for (const char* architecture : {"llama", "qwen3"}) {
    TinyModel model = good_model();
    model.architecture = architecture;
    model.tokens =
        std::string(architecture) == "llama" ? TinyVocabulary::kSpm : TinyVocabulary::kBytePairs;
    const Bytes good = tiny_gguf_bytes(model);
    const std::size_t metadata = data_offset(good);
    // The vocabulary is most of the metadata; aim half of the flips at the rest.
    const std::size_t vocabulary = offset_behind(good, "tokenizer.ggml.tokens");
    const std::size_t tensors = offset_behind(good, "token_embd.weight") - 32;
    for (std::uint32_t seed = 0; seed < kSeeds / 2; ++seed) {
      std::mt19937_64 random(seed);
      Bytes bytes = good;
      const std::size_t count = 1 + random() % 4;
      for (std::size_t i = 0; i < count; ++i) {
        const std::size_t front = random() % vocabulary;
        const std::size_t back = tensors + random() % (metadata - tensors);
        const std::array<std::size_t, 4> places = {front, back, random() % metadata, front};
        bytes[places[random() % 4]] = static_cast<std::uint8_t>(random());
      }
      const Outcome outcome = load(bytes);
      EXPECT_TRUE(outcome.kind == Outcome::kLoaded || is_refusal(outcome))
          << architecture << ", seed " << seed << ": "
          << (outcome.kind == Outcome::kCrashed ? "crashed" : outcome.message);
    }
  }
}

// Optional things may be absent; the model then works all the same.
TEST(GoodFile, LoadsWithoutAnySpecialToken) {
  for (const TinyVocabulary tokens : {TinyVocabulary::kSpm, TinyVocabulary::kBytePairs}) {
    for (const bool byte_tokens : {true, false}) {
      TinyModel model = good_model();
      model.tokens = tokens;
      model.special_tokens = false;
      model.byte_tokens = byte_tokens;
      const TemporaryFile file(model);
      const std::shared_ptr<const Model> loaded = Model::load(file.path());
      EXPECT_EQ(loaded->info().vocabulary, model.vocabulary);
      const Tokenizer& tokenizer = loaded->tokenizer();
      EXPECT_FALSE(tokenizer.tokenize("hello there", true, true).empty());
      EXPECT_FALSE(tokenizer.has_chat_template());
      // A newline that the vocabulary cannot spell is an error, not a crash.
      try {
        tokenizer.tokenize("a\nb \xFF\xFE", true, false);
      } catch (const Error&) {
        EXPECT_FALSE(byte_tokens);
      }
    }
  }
}

TEST(GoodFile, InfoTellsWhatTheFileSays) {
  TinyModel model;
  model.architecture = "qwen3";
  model.head_dim = 128;
  model.rope = TinyRope::kYarn;
  model.rope_factor = 4;
  model.original_context = 64;
  const TemporaryFile file(model);
  const ModelInfo info = Model::load(file.path())->info();
  EXPECT_EQ(info.path, file.path());
  EXPECT_EQ(info.name, "tiny");
  EXPECT_EQ(info.architecture, "qwen3");
  EXPECT_EQ(info.rope_scaling, "yarn");
  EXPECT_EQ(info.num_layers, 2);
  EXPECT_EQ(info.num_q_heads, 4);
  EXPECT_EQ(info.num_kv_heads, 2);
  EXPECT_EQ(info.head_dim, 128);
  EXPECT_EQ(info.embedding_dim, 256);
  EXPECT_EQ(info.feed_forward_dim, 256);
  EXPECT_EQ(info.vocabulary, 320);
  EXPECT_EQ(info.context, 4096);
}

}  // namespace
}  // namespace quest::testing
