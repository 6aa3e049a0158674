// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "conversation.h"

#include <utility>

#include "chat_prompt.h"

namespace quest::cli {
namespace {

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kWhiteSpace = " \t\r\n";
  const std::size_t begin = text.find_first_not_of(kWhiteSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kWhiteSpace) - begin + 1);
}

// What follows `prefix` and then `answer`, which templates may trim; false if `text` does not
// continue that way.
bool continuation(std::string_view text, std::string_view prefix, std::string_view answer,
                  std::string_view& rest) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  for (const std::string_view form : {answer, trimmed(answer)}) {
    if (!text.starts_with(form)) continue;
    rest = text.substr(form.size());
    return true;
  }
  return false;
}

}  // namespace

Conversation::Conversation(Session& session, Engine& engine) : session_(session), engine_(engine) {}

std::vector<Token> Conversation::turn_tokens(const std::string& user_text) {
  const Tokenizer& tokenizer = engine_.model().tokenizer();
  std::vector<ChatMessage> messages = messages_;
  messages.push_back({"user", user_text});
  const std::string text = tokenizer.apply_chat_template(messages);
  std::string_view rest = text;
  std::vector<std::string_view> literals;
  if (!history_in_cache_ || !continuation(text, rendered_, messages_.back().content, rest)) {
    // Nothing read yet, or the template writes the history anew: read all of it.
    session_.truncate(0);
    history_in_cache_ = false;
    rest = text;
    for (const ChatMessage& message : messages_) literals.push_back(trimmed(message.content));
  }
  literals.push_back(trimmed(user_text));
  return tokenize_template(tokenizer, rest, literals, session_.length() == 0);
}

CompletionRequest Conversation::next_turn(const std::string& user_text) {
  std::vector<Token> tokens = turn_tokens(user_text);
  CompletionRequest request;
  const bool sparse = history_in_cache_ && static_cast<std::int64_t>(tokens.size()) < kSparseTurn;
  (sparse ? request.feed : request.prefill) = std::move(tokens);
  return request;
}

void Conversation::answered(const std::string& user_text, const Completion& completion) {
  messages_.push_back({"user", user_text});
  rendered_ = engine_.model().tokenizer().apply_chat_template(messages_);
  messages_.push_back({"assistant", completion.text});
  history_in_cache_ = true;
}

void Conversation::abandon() { history_in_cache_ = false; }

void Conversation::reset() {
  session_.truncate(0);
  messages_.clear();
  rendered_.clear();
  history_in_cache_ = false;
}

}  // namespace quest::cli
