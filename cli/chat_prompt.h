// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "quest/tokenizer.h"

namespace quest::cli {

/// Tokens of template text in which some stretches came from the user. Markup of the template
/// becomes special tokens; the same characters inside `literals` stay plain text. The literals are
/// looked for in order; one that the template changed beyond recognition is left out.
std::vector<Token> tokenize_template(const Tokenizer& tokenizer, std::string_view text,
                                     const std::vector<std::string_view>& literals,
                                     bool add_special);

/// A prompt in two parts.
struct SplitPrompt {
  std::vector<Token> document;
  std::vector<Token> question;
};

/// `document`, a blank line and `question` as one text, split where the question begins.
/// The tokens are those of the whole text, so that splitting changes nothing the model sees.
SplitPrompt split_plain(const Tokenizer& tokenizer, const std::string& document,
                        const std::string& question);

/// The same as one user turn of the model's chat template, split before the blank line; what the
/// template puts after the question goes with the question. Throws Error without a template.
SplitPrompt split_chat(const Tokenizer& tokenizer, const std::string& document,
                       const std::string& question);

}  // namespace quest::cli
