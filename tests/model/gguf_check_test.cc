// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "model/gguf_check.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <random>

#include "gguf.h"
#include "llama.h"
#include "model/bad_files.h"
#include "quest/error.h"

namespace quest::testing {
namespace {

void check(const Bytes& bytes) { check_gguf_bytes(std::as_bytes(std::span(bytes)), "bytes"); }

/// Runs `work` in a child process. Returns whether it ended normally, not by a signal.
bool survives(const std::function<void()>& work) {
  const pid_t child = ::fork();
  if (child == 0) {
    work();
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status);
}

/// What a loader does after the check: ggml's metadata, then libllama's vocabulary.
void load_with_libraries(const Bytes& bytes) {
  const auto silent = [](ggml_log_level, const char*, void*) {};
  llama_log_set(silent, nullptr);
  const TemporaryFile file(bytes);
  gguf_context* gguf = gguf_init_from_file(file.path().c_str(), {true, nullptr});
  if (gguf != nullptr) gguf_free(gguf);
  llama_model_params params = llama_model_default_params();
  params.vocab_only = true;
  llama_model* model = llama_model_load_from_file(file.path().c_str(), params);
  if (model != nullptr) llama_model_free(model);
}

TEST(GgufCheck, GoodFilesPass) {
  for (const TinyVocabulary tokens : {TinyVocabulary::kSpm, TinyVocabulary::kBytePairs}) {
    TinyModel model = good_model();
    model.tokens = tokens;
    EXPECT_NO_THROW(check(tiny_gguf_bytes(model)));
    model.special_tokens = false;
    EXPECT_NO_THROW(check(tiny_gguf_bytes(model)));
    model.byte_tokens = false;
    EXPECT_NO_THROW(check(tiny_gguf_bytes(model)));
  }
}

// Published files carry -1 or the vocabulary's size for "no such token".
TEST(GgufCheck, SpecialIdsOutsideTheVocabularyPass) {
  for (const std::uint32_t id : {320U, 0xFFFFFFFFU}) {
    TinyModel model = good_model();
    model.edit = [id](gguf_context* gguf) {
      gguf_set_val_u32(gguf, "tokenizer.ggml.padding_token_id", id);
    };
    EXPECT_NO_THROW(check(tiny_gguf_bytes(model)));
  }
}

TEST(GgufCheck, MalformedContainersAreRefusedWithTheField) {
  for (const BadFile& file : bad_containers()) {
    if (file.bytes.empty()) continue;  // a file of no bytes is refused at opening
    SCOPED_TRACE(file.name);
    try {
      check(file.bytes);
      ADD_FAILURE() << "accepted";
    } catch (const FileError& error) {
      EXPECT_FALSE(file.unsupported) << error.what();
      EXPECT_NE(std::string(error.what()).find(file.field), std::string::npos) << error.what();
    } catch (const UnsupportedModel& error) {
      EXPECT_TRUE(file.unsupported) << error.what();
      EXPECT_NE(std::string(error.what()).find(file.field), std::string::npos) << error.what();
    }
  }
}

TEST(GgufCheck, EveryTruncationOfTheMetadataIsRefused) {
  const Bytes good = tiny_gguf_bytes(good_model());
  const std::size_t metadata = data_offset(good);
  for (std::size_t size = 0; size <= metadata; ++size) {
    const Bytes cut(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_THROW(check(cut), FileError) << "cut at " << size;
  }
}

TEST(GgufCheck, TruncationInsideTheDataIsRefused) {
  const Bytes good = tiny_gguf_bytes(good_model());
  std::mt19937_64 random(11);
  std::uniform_int_distribution<std::size_t> place(data_offset(good), good.size() - 33);
  for (int i = 0; i < 200; ++i) {
    const std::size_t size = place(random);
    const Bytes cut(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_THROW(check(cut), FileError) << "cut at " << size;
  }
}

TEST(GgufCheck, MissingFileDirectoryAndDeviceAreRefused) {
  for (const char* path : {"/no/such/file.gguf", "/", "/dev/null"}) {
    try {
      check_gguf(path);
      ADD_FAILURE() << path << " accepted";
    } catch (const FileError& error) {
      EXPECT_NE(std::string(error.what()).find(path), std::string::npos) << error.what();
    }
  }
  const TemporaryFile empty{Bytes()};
  EXPECT_THROW(check_gguf(empty.path()), FileError);
}

/// Flips 1 to 8 bytes of the metadata.
Bytes flipped(const Bytes& good, std::size_t metadata, std::uint32_t seed) {
  std::mt19937_64 random(seed);
  Bytes bytes = good;
  const std::size_t count = 1 + random() % 8;
  for (std::size_t i = 0; i < count; ++i) {
    bytes[random() % metadata] = static_cast<std::uint8_t>(random());
  }
  return bytes;
}

// Whatever the check lets pass, ggml and libllama must survive. They run in a child process, many
// files each, so that an abort is seen and its file can be told.
TEST(GgufCheck, WhatPassesAfterRandomFlipsDoesNotAbortTheLibraries) {
  constexpr std::uint32_t kSeeds = 2000;
  constexpr std::size_t kGroup = 50;
  for (const TinyVocabulary tokens : {TinyVocabulary::kSpm, TinyVocabulary::kBytePairs}) {
    TinyModel model = good_model();
    model.tokens = tokens;
    const Bytes good = tiny_gguf_bytes(model);
    const std::size_t metadata = data_offset(good);
    std::vector<std::uint32_t> passed;
    for (std::uint32_t seed = 0; seed < kSeeds; ++seed) {
      try {
        check(flipped(good, metadata, seed));
        passed.push_back(seed);
      } catch (const Error&) {
      }
    }
    EXPECT_GT(passed.size(), 100U);
    EXPECT_LT(passed.size(), kSeeds - 100U);
    for (std::size_t start = 0; start < passed.size(); start += kGroup) {
      const std::size_t end = std::min(passed.size(), start + kGroup);
      const bool all_survive = survives([&] {
        for (std::size_t i = start; i < end; ++i) {
          load_with_libraries(flipped(good, metadata, passed[i]));
        }
      });
      if (all_survive) continue;
      for (std::size_t i = start; i < end; ++i) {
        EXPECT_TRUE(survives([&] { load_with_libraries(flipped(good, metadata, passed[i])); }))
            << "vocabulary " << static_cast<int>(tokens) << ", seed " << passed[i];
      }
    }
  }
}

}  // namespace
}  // namespace quest::testing
