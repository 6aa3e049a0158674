// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "completion.h"
#include "quest/engine.h"

namespace quest::cli {

/// A chat whose history stays in the session's cache: a turn costs its own new tokens only.
class Conversation {
 public:
  /// Both must outlive the conversation.
  Conversation(Session& session, Engine& engine);

  /// Tokens of the user's next turn, up to where the assistant begins to write. Turns shorter than
  /// `kSparseTurn` tokens are to be fed sparsely, longer ones (a pasted document) prefilled.
  CompletionRequest next_turn(const std::string& user_text);
  /// The turn was answered: what was written joins the history.
  void answered(const std::string& user_text, const Completion& completion);
  /// Reading the turn was interrupted: the next one reads the history again.
  void abandon();
  /// Forgets everything.
  void reset();

  static constexpr std::int64_t kSparseTurn = 256;

 private:
  std::vector<Token> turn_tokens(const std::string& user_text);

  Session& session_;
  Engine& engine_;
  std::vector<ChatMessage> messages_;
  std::string rendered_;           ///< template text up to where the last answer began
  bool history_in_cache_ = false;  ///< `messages_` have been read, the last answer included
};

}  // namespace quest::cli
