// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "chat_prompt.h"

#include <algorithm>

#include "quest/error.h"

namespace quest::cli {
namespace {

constexpr std::string_view kBlankLine = "\n\n";

void append(std::vector<Token>& tokens, const std::vector<Token>& more) {
  tokens.insert(tokens.end(), more.begin(), more.end());
}

}  // namespace

std::vector<Token> tokenize_template(const Tokenizer& tokenizer, std::string_view text,
                                     const std::vector<std::string_view>& literals,
                                     bool add_special) {
  std::vector<Token> tokens;
  const auto add = [&](std::string_view part, bool markup) {
    if (part.empty()) return;
    append(tokens, tokenizer.tokenize(part, add_special && tokens.empty(), markup));
  };
  for (const std::string_view literal : literals) {
    const std::size_t begin = literal.empty() ? std::string_view::npos : text.find(literal);
    if (begin == std::string_view::npos) continue;
    add(text.substr(0, begin), true);
    add(literal, false);
    text.remove_prefix(begin + literal.size());
  }
  add(text, true);
  return tokens;
}

SplitPrompt split_plain(const Tokenizer& tokenizer, const std::string& document,
                        const std::string& question) {
  const std::vector<Token> alone = tokenizer.tokenize(document, true, false);
  std::vector<Token> whole =
      tokenizer.tokenize(document + std::string(kBlankLine) + question, true, false);
  // Where both part ways is where the question's tokens begin; a last token of the document that
  // merged with the blank line belongs to the question.
  const auto split = std::mismatch(whole.begin(), whole.end(), alone.begin(), alone.end()).first;
  SplitPrompt prompt;
  prompt.document.assign(whole.begin(), split);
  prompt.question.assign(split, whole.end());
  return prompt;
}

SplitPrompt split_chat(const Tokenizer& tokenizer, const std::string& document,
                       const std::string& question) {
  const std::string tail = std::string(kBlankLine) + question;
  const ChatMessage message{"user", document + tail};
  const std::string text = tokenizer.apply_chat_template({&message, 1});
  // From the end: the document may quote the question.
  const std::size_t split = text.rfind(tail);
  if (split == std::string::npos) {
    throw Error("the model's chat template changes the question; ask without --chat");
  }
  const std::string_view view = text;
  SplitPrompt prompt;
  prompt.document = tokenize_template(tokenizer, view.substr(0, split), {document}, true);
  prompt.question = tokenize_template(tokenizer, view.substr(split), {tail}, false);
  return prompt;
}

}  // namespace quest::cli
