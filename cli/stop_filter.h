// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace quest::cli {

/// When a generated text is complete, besides the model's own end-of-text token.
struct StopRule {
  std::vector<std::string> texts;  ///< stop before the first of these; empty texts are ignored
  bool first_line = false;         ///< stop at the end of the first line that holds an answer
};

/// Passes a stream of text on up to the point where a stop rule applies. Text that may turn out to
/// be the beginning of a stop text is held back until that is decided.
class StopFilter {
 public:
  explicit StopFilter(StopRule rule);

  /// Takes the next piece; returns what can be shown now.
  std::string push(std::string_view piece);
  /// The stream is over; returns what was held back.
  std::string finish();

  bool stopped() const { return stopped_; }

 private:
  std::size_t find_stop() const;
  std::size_t held_back() const;

  StopRule rule_;
  std::string pending_;
  bool has_answer_ = false;  ///< something else than white space was passed on
  bool stopped_ = false;
};

}  // namespace quest::cli
