// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "eval/text_windows.h"

#include "input.h"
#include "quest/error.h"
#include "quest/eval/fingerprint.h"

namespace quest::cli {

std::vector<TextWindow> text_windows(const Tokenizer& tokenizer,
                                     const std::vector<std::string>& files,
                                     const eval::PerplexityPlan& plan, std::int64_t count,
                                     Json& identity) {
  const std::vector<Token> begin_of_text = tokenizer.tokenize("", true, false);
  const std::int64_t own = plan.window_tokens() - static_cast<std::int64_t>(begin_of_text.size());
  std::vector<TextWindow> windows;
  identity["texts"] = Json::array();
  for (std::size_t file = 0; file < files.size(); ++file) {
    const std::string text = read_input(files[file]);
    identity["texts"].push_back(eval::fingerprint(text));
    const std::vector<Token> tokens = tokenizer.tokenize(text, false, false);
    std::vector<std::int64_t> starts;
    try {
      starts =
          eval::window_starts(static_cast<std::int64_t>(tokens.size()), own, plan.tokens, count);
    } catch (const InvalidArgument& error) {
      throw InvalidArgument("'" + files[file] + "': " + error.what());
    }
    for (std::size_t i = 0; i < starts.size(); ++i) {
      TextWindow window;
      window.name = std::to_string(file) + "/" + std::to_string(i);
      window.tokens = begin_of_text;
      const auto first = tokens.begin() + starts[i];
      window.tokens.insert(window.tokens.end(), first, first + own);
      windows.push_back(std::move(window));
    }
  }
  return windows;
}

}  // namespace quest::cli
