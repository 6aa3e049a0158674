// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

struct llama_model;
struct llama_vocab;

namespace quest {

using Token = std::int32_t;

struct ChatMessage {
  std::string role;  ///< "system", "user", "assistant"
  std::string content;
};

/// Text to tokens and back, by the vocabulary of the model's file (libllama). Thread-safe.
class Tokenizer {
 public:
  /// Loads only the vocabulary of the file. Throws FileError.
  explicit Tokenizer(const std::string& gguf_path);
  ~Tokenizer();

  /// add_special: begin-of-text as the model wants it. parse_special: "<|im_end|>" and the like in
  /// the text become their tokens; leave it off for text that a user did not write as markup.
  std::vector<Token> tokenize(std::string_view text, bool add_special, bool parse_special) const;
  /// Bytes of one token; may be a fraction of a UTF-8 character. Special tokens give nothing.
  std::string piece(Token token) const;
  std::string detokenize(std::span<const Token> tokens) const;
  /// True for the tokens that end a generation.
  bool ends_generation(Token token) const;
  std::int32_t size() const;

  /// True if the file carries a chat template that libllama can render.
  bool has_chat_template() const;
  /// The messages as prompt text, open for the assistant's next turn. Throws Error without
  /// template.
  std::string apply_chat_template(std::span<const ChatMessage> messages) const;

  const llama_vocab* vocab() const;

 private:
  llama_model* model_ = nullptr;
};

}  // namespace quest
