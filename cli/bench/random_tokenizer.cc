// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "bench/random_tokenizer.h"

#include <ggml-cpp.h>
#include <gguf.h>
#include <llama.h>

#include <algorithm>
#include <vector>

#include "quest/error.h"

namespace quest::cli {
namespace {

constexpr const char* kTokens = "tokenizer.ggml.tokens";
constexpr const char* kTypes = "tokenizer.ggml.token_type";
constexpr const char* kScores = "tokenizer.ggml.scores";

// All keys of the source but the tokenizer's describe another model.
void keep_tokenizer_keys(gguf_context* gguf) {
  std::vector<std::string> others;
  for (std::int64_t i = 0; i < gguf_get_n_kv(gguf); ++i) {
    const std::string key = gguf_get_key(gguf, i);
    if (!key.starts_with("tokenizer.")) others.push_back(key);
  }
  for (const std::string& key : others) gguf_remove_key(gguf, key.c_str());
}

void pad_tokens(gguf_context* gguf, std::int64_t key, std::size_t size) {
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < gguf_get_arr_n(gguf, key); ++i) {
    texts.emplace_back(gguf_get_arr_str(gguf, key, i));
  }
  while (texts.size() < size) texts.push_back("[unused-" + std::to_string(texts.size()) + "]");
  std::vector<const char*> pointers;
  pointers.reserve(texts.size());
  for (const std::string& text : texts) pointers.push_back(text.c_str());
  gguf_set_arr_str(gguf, kTokens, pointers.data(), pointers.size());
}

// An array with one number a token, where the file has it.
template <typename T>
void pad_numbers(gguf_context* gguf, const char* name, gguf_type type, T value, std::size_t size) {
  const std::int64_t key = gguf_find_key(gguf, name);
  if (key < 0 || gguf_get_arr_type(gguf, key) != type) return;
  const auto* const old = static_cast<const T*>(gguf_get_arr_data(gguf, key));
  std::vector<T> numbers(old, old + gguf_get_arr_n(gguf, key));
  numbers.resize(size, value);
  gguf_set_arr_data(gguf, name, type, numbers.data(), numbers.size());
}

}  // namespace

PaddedTokenizer copy_tokenizer(gguf_context* to, const std::string& path, std::int64_t vocabulary) {
  const gguf_init_params params = {true, nullptr};
  const gguf_context_ptr from(gguf_init_from_file(path.c_str(), params));
  if (!from) throw FileError("cannot read '" + path + "'");
  const std::int64_t name = gguf_find_key(from.get(), "general.name");
  PaddedTokenizer result;
  result.description =
      "tokenizer of " +
      std::string(name >= 0 && gguf_get_kv_type(from.get(), name) == GGUF_TYPE_STRING
                      ? gguf_get_val_str(from.get(), name)
                      : "another model");
  keep_tokenizer_keys(from.get());
  const std::int64_t key = gguf_find_key(from.get(), kTokens);
  if (key < 0) throw FileError("'" + path + "' has no tokenizer (" + kTokens + ")");
  const auto stored = static_cast<std::int64_t>(gguf_get_arr_n(from.get(), key));
  result.vocabulary = std::max(stored, vocabulary);
  if (stored < vocabulary) {
    const auto size = static_cast<std::size_t>(vocabulary);
    pad_tokens(from.get(), key, size);
    pad_numbers<std::int32_t>(from.get(), kTypes, GGUF_TYPE_INT32, LLAMA_TOKEN_TYPE_UNUSED, size);
    pad_numbers<float>(from.get(), kScores, GGUF_TYPE_FLOAT32, -1e4F, size);
    result.description +=
        " padded from " + std::to_string(stored) + " to " + std::to_string(vocabulary) + " tokens";
  } else if (stored > vocabulary) {
    result.description +=
        ", its " + std::to_string(stored) + " tokens instead of " + std::to_string(vocabulary);
  }
  gguf_set_kv(to, from.get());
  return result;
}

}  // namespace quest::cli
