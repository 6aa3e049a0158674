// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "model/tiny_vocabulary.h"

#include <array>
#include <cstdio>
#include <stdexcept>

#include "gguf.h"
#include "llama.h"

namespace quest::testing {
namespace {

constexpr std::uint32_t kNumBytes = 256;
const std::string kLetters = "etaoinshrdlucmfwypvbgkjqxz";

struct Vocabulary {
  std::vector<std::string> texts;
  std::vector<float> scores;
  std::vector<std::int32_t> types;

  void add(const std::string& text, llama_token_type type, float score = 0) {
    texts.push_back(text);
    types.push_back(type);
    scores.push_back(score);
  }
};

void set_strings(gguf_context* gguf, const char* key, const std::vector<std::string>& values) {
  std::vector<const char*> pointers;
  for (const std::string& value : values) pointers.push_back(value.c_str());
  gguf_set_arr_str(gguf, key, pointers.data(), pointers.size());
}

void add_arrays(gguf_context* gguf, const Vocabulary& vocabulary, bool with_types) {
  set_strings(gguf, "tokenizer.ggml.tokens", vocabulary.texts);
  if (!with_types) return;
  gguf_set_arr_data(gguf, "tokenizer.ggml.token_type", GGUF_TYPE_INT32, vocabulary.types.data(),
                    vocabulary.types.size());
}

void add_special_keys(gguf_context* gguf, std::uint32_t begin, std::uint32_t end, bool add_begin) {
  gguf_set_val_u32(gguf, "tokenizer.ggml.bos_token_id", begin);
  gguf_set_val_u32(gguf, "tokenizer.ggml.eos_token_id", end);
  gguf_set_val_bool(gguf, "tokenizer.ggml.add_bos_token", add_begin);
  gguf_set_val_bool(gguf, "tokenizer.ggml.add_eos_token", false);
}

/// Pairs of letters in a fixed order, all different.
std::string letter_pair(std::size_t index) {
  const std::size_t n = kLetters.size();
  return {kLetters.at(index / n), kLetters.at(index % n)};
}

void add_sentence_pieces(gguf_context* gguf, const TinyModel& model) {
  const auto size = static_cast<std::size_t>(model.vocabulary);
  Vocabulary vocabulary;
  if (model.special_tokens) {
    vocabulary.add("<unk>", LLAMA_TOKEN_TYPE_UNKNOWN);
    vocabulary.add("<s>", LLAMA_TOKEN_TYPE_CONTROL);
    vocabulary.add("</s>", LLAMA_TOKEN_TYPE_CONTROL);
  }
  for (std::uint32_t byte = 0; byte < kNumBytes && model.byte_tokens; ++byte) {
    std::array<char, 8> text{};
    std::snprintf(text.data(), text.size(), "<0x%02X>", byte);
    vocabulary.add(text.data(), LLAMA_TOKEN_TYPE_BYTE);
  }
  vocabulary.add("\xE2\x96\x81", LLAMA_TOKEN_TYPE_NORMAL, -1);  // the space mark
  for (const char letter : kLetters) vocabulary.add({letter}, LLAMA_TOKEN_TYPE_NORMAL, -2);
  for (std::size_t i = 0; vocabulary.texts.size() < size; ++i) {
    vocabulary.add(letter_pair(i), LLAMA_TOKEN_TYPE_NORMAL, -3.0F - static_cast<float>(i));
  }
  if (vocabulary.texts.size() != size) throw std::runtime_error("vocabulary too small");
  gguf_set_val_str(gguf, "tokenizer.ggml.model", "llama");
  add_arrays(gguf, vocabulary, model.special_tokens);
  gguf_set_arr_data(gguf, "tokenizer.ggml.scores", GGUF_TYPE_FLOAT32, vocabulary.scores.data(),
                    size);
  if (!model.special_tokens) return;
  add_special_keys(gguf, 1, 2, true);
  gguf_set_val_u32(gguf, "tokenizer.ggml.unknown_token_id", 0);
}

std::string utf8(std::uint32_t code) {
  if (code < 0x80) return {static_cast<char>(code)};
  return {static_cast<char>(0xC0 | (code >> 6)), static_cast<char>(0x80 | (code & 0x3F))};
}

/// The visible character that stands for a byte in byte-level vocabularies: the byte itself where
/// Latin-1 has a visible character for it, else the next free one from 256 on.
std::vector<std::string> byte_characters() {
  std::vector<std::string> characters;
  std::uint32_t next = 256;
  for (std::uint32_t byte = 0; byte < kNumBytes; ++byte) {
    const bool visible = (byte > 32 && byte < 127) || (byte > 160 && byte < 173) || byte > 173;
    characters.push_back(utf8(visible ? byte : next++));
  }
  return characters;
}

void add_byte_pairs(gguf_context* gguf, const TinyModel& model) {
  const auto size = static_cast<std::size_t>(model.vocabulary);
  Vocabulary vocabulary;
  if (model.special_tokens) vocabulary.add("<|endoftext|>", LLAMA_TOKEN_TYPE_CONTROL);
  for (const std::string& text : byte_characters()) vocabulary.add(text, LLAMA_TOKEN_TYPE_NORMAL);
  std::vector<std::string> merges;
  for (std::size_t i = 0; vocabulary.texts.size() < size; ++i) {
    const std::string pair = letter_pair(i);
    merges.push_back({pair[0], ' ', pair[1]});
    vocabulary.add(pair, LLAMA_TOKEN_TYPE_NORMAL);
  }
  gguf_set_val_str(gguf, "tokenizer.ggml.model", "gpt2");
  if (!model.pre.empty()) gguf_set_val_str(gguf, "tokenizer.ggml.pre", model.pre.c_str());
  add_arrays(gguf, vocabulary, model.special_tokens);
  set_strings(gguf, "tokenizer.ggml.merges", merges);
  if (model.special_tokens) add_special_keys(gguf, 0, 0, false);
}

}  // namespace

void add_vocabulary_keys(gguf_context* gguf, const TinyModel& model) {
  if (model.tokens == TinyVocabulary::kSpm) {
    add_sentence_pieces(gguf, model);
  } else {
    add_byte_pairs(gguf, model);
  }
}

}  // namespace quest::testing
