// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "quest/error.h"
#include "quest/eval/passkey.h"

namespace quest::eval {
namespace {

/// End of the sentence that begins at `begin`: before the white space that follows a full stop,
/// question or exclamation mark (closing quotes included), or before an empty line.
std::size_t sentence_end(std::string_view text, std::size_t begin) {
  constexpr std::string_view kSpace = " \t\r\n";
  for (std::size_t i = begin; i < text.size(); ++i) {
    if (text.compare(i, 2, "\n\n") == 0 && i > begin) return i;
    if (text[i] != '.' && text[i] != '?' && text[i] != '!') continue;
    std::size_t end = i + 1;
    while (end < text.size() && (text[end] == '"' || text[end] == '\'' || text[end] == ')')) ++end;
    if (end == text.size() || kSpace.find(text[end]) != std::string_view::npos) return end;
  }
  return text.size();
}

}  // namespace

Haystack::Haystack(const Tokenizer& tokenizer, std::string_view text) {
  // White space goes with the sentence after it, as byte-pair vocabularies have it.
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t first = text.find_first_not_of(" \t\r\n", begin);
    if (first == std::string_view::npos) break;
    const std::size_t end = sentence_end(text, first);
    std::vector<Token> tokens = tokenizer.tokenize(text.substr(begin, end - begin), false, false);
    if (!tokens.empty()) sentences_.push_back(std::move(tokens));
    begin = end;
  }
  if (sentences_.empty()) {
    throw InvalidArgument("the filler text is empty; give a file with some sentences");
  }
}

std::vector<Token> Haystack::take(std::uint64_t sentence, std::int64_t count,
                                  std::vector<std::int64_t>& starts) const {
  std::vector<Token> tokens;
  starts.clear();
  while (static_cast<std::int64_t>(tokens.size()) < count) {
    const std::vector<Token>& next = sentences_[sentence++ % sentences_.size()];
    starts.push_back(static_cast<std::int64_t>(tokens.size()));
    const auto left = static_cast<std::size_t>(count) - tokens.size();
    const auto last = next.begin() + static_cast<std::ptrdiff_t>(std::min(left, next.size()));
    tokens.insert(tokens.end(), next.begin(), last);
  }
  return tokens;
}

}  // namespace quest::eval
