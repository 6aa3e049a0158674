// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "quest/tokenizer.h"

#include <llama.h>

#include <exception>
#include <limits>

#include "model/gguf_check.h"
#include "quest/error.h"

namespace quest {

Tokenizer::Tokenizer(const std::string& gguf_path) {
  check_gguf(gguf_path);
  llama_model_params params = llama_model_default_params();
  params.vocab_only = true;
  model_ = llama_model_load_from_file(gguf_path.c_str(), params);
  if (model_ == nullptr) {
    throw FileError(gguf_path + ": libllama cannot load the vocabulary of this file");
  }
}

Tokenizer::~Tokenizer() { llama_model_free(model_); }

const llama_vocab* Tokenizer::vocab() const { return llama_model_get_vocab(model_); }

std::vector<Token> Tokenizer::tokenize(std::string_view text, bool add_special,
                                       bool parse_special) const {
  if (text.size() > static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max() / 2)) {
    throw InvalidArgument("text of " + std::to_string(text.size()) +
                          " bytes is too long to tokenize; the limit is 1 GiB");
  }
  const auto length = static_cast<std::int32_t>(text.size());
  // One token a byte at most, and the special ones around.
  std::vector<Token> tokens(text.size() + 8);
  const auto tokenize_into = [&] {
    return llama_tokenize(vocab(), text.data(), length, tokens.data(),
                          static_cast<std::int32_t>(tokens.size()), add_special, parse_special);
  };
  std::int32_t count = 0;
  try {
    count = tokenize_into();
    if (count < 0) {
      tokens.resize(static_cast<std::size_t>(-count));
      count = tokenize_into();
    }
  } catch (const std::exception&) {
    // libllama looks up byte tokens that a vocabulary may lack.
    throw Error("the vocabulary has no token for some bytes of the text");
  }
  if (count < 0) throw Error("the vocabulary could not tokenize the text");
  tokens.resize(static_cast<std::size_t>(count));
  return tokens;
}

std::string Tokenizer::piece(Token token) const {
  std::string text(32, '\0');
  std::int32_t length = llama_token_to_piece(vocab(), token, text.data(),
                                             static_cast<std::int32_t>(text.size()), 0, false);
  if (length < 0) {
    text.resize(static_cast<std::size_t>(-length));
    length = llama_token_to_piece(vocab(), token, text.data(), -length, 0, false);
  }
  text.resize(static_cast<std::size_t>(length > 0 ? length : 0));
  return text;
}

std::string Tokenizer::detokenize(std::span<const Token> tokens) const {
  std::string text;
  for (Token token : tokens) text += piece(token);
  return text;
}

bool Tokenizer::ends_generation(Token token) const { return llama_vocab_is_eog(vocab(), token); }

std::int32_t Tokenizer::size() const { return llama_vocab_n_tokens(vocab()); }

bool Tokenizer::has_chat_template() const {
  const char* text = llama_model_chat_template(model_, nullptr);
  if (text == nullptr) return false;
  const llama_chat_message message{"user", ""};
  return llama_chat_apply_template(text, &message, 1, true, nullptr, 0) >= 0;
}

std::string Tokenizer::apply_chat_template(std::span<const ChatMessage> messages) const {
  const char* text = llama_model_chat_template(model_, nullptr);
  std::vector<llama_chat_message> list;
  for (const ChatMessage& message : messages) {
    list.push_back({message.role.c_str(), message.content.c_str()});
  }
  const std::int32_t length =
      text == nullptr ? -1
                      : llama_chat_apply_template(text, list.data(), list.size(), true, nullptr, 0);
  if (length < 0) {
    throw Error("the model's file has no chat template that can be applied; use plain prompts");
  }
  std::string prompt(static_cast<std::size_t>(length), '\0');
  llama_chat_apply_template(text, list.data(), list.size(), true, prompt.data(), length);
  return prompt;
}

}  // namespace quest
