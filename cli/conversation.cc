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
  const bool first = messages_.empty();
  std::vector<Token> tokens;
  if (history_in_cache_ && continuation(text, rendered_, messages_.back().content, rest)) {
    tokens = unread_;
  } else if (!first) {
    // The template writes the history anew (it may drop parts of it): read it all again.
    session_.truncate(0);
    turn_start_ = 0;
    history_in_cache_ = false;
  }
  std::vector<std::string_view> literals;
  if (rest.size() == text.size()) {
    for (const ChatMessage& message : messages_) literals.push_back(message.content);
  }
  literals.push_back(trimmed(user_text));
  const std::vector<Token> turn =
      tokenize_template(tokenizer, rest, literals, session_.length() == 0);
  tokens.insert(tokens.end(), turn.begin(), turn.end());
  return tokens;
}

CompletionRequest Conversation::next_turn(const std::string& user_text) {
  turn_start_ = session_.length();
  std::vector<Token> tokens = turn_tokens(user_text);
  CompletionRequest request;
  const bool sparse = turn_start_ > 0 && static_cast<std::int64_t>(tokens.size()) < kSparseTurn;
  (sparse ? request.feed : request.prefill) = std::move(tokens);
  return request;
}

void Conversation::answered(const std::string& user_text, const Completion& completion) {
  const Tokenizer& tokenizer = engine_.model().tokenizer();
  messages_.push_back({"user", user_text});
  rendered_ = tokenizer.apply_chat_template(messages_);
  messages_.push_back({"assistant", completion.text});

  std::vector<Token> written = completion.generation.tokens;
  std::int64_t in_cache =
      session_.length() - turn_start_ - completion.prefill_tokens - completion.feed_tokens;
  // The template writes the end of a turn itself.
  if (!written.empty() && tokenizer.ends_generation(written.back())) {
    written.pop_back();
    const auto kept = static_cast<std::int64_t>(written.size());
    if (in_cache > kept) {
      session_.truncate(session_.length() - (in_cache - kept));
      in_cache = kept;
    }
  }
  unread_.assign(written.begin() + in_cache, written.end());
  history_in_cache_ = true;
}

void Conversation::abandon() { session_.truncate(turn_start_); }

void Conversation::reset() {
  session_.truncate(0);
  messages_.clear();
  rendered_.clear();
  unread_.clear();
  turn_start_ = 0;
  history_in_cache_ = false;
}

}  // namespace quest::cli
