// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "stop_filter.h"

#include <algorithm>
#include <utility>

namespace quest::cli {
namespace {

constexpr std::string_view kWhiteSpace = " \t\r\n";

}  // namespace

StopFilter::StopFilter(StopRule rule) : rule_(std::move(rule)) {
  std::erase_if(rule_.texts, [](const std::string& text) { return text.empty(); });
}

std::size_t StopFilter::find_stop() const {
  std::size_t first = std::string::npos;
  for (const std::string& text : rule_.texts) first = std::min(first, pending_.find(text));
  if (rule_.first_line) {
    const std::size_t answer = has_answer_ ? 0 : pending_.find_first_not_of(kWhiteSpace);
    if (answer != std::string::npos) first = std::min(first, pending_.find('\n', answer));
  }
  return first;
}

// Length of the longest end of the pending text that a stop text begins with.
std::size_t StopFilter::held_back() const {
  std::size_t longest = 0;
  for (const std::string& text : rule_.texts) {
    for (std::size_t n = std::min(text.size() - 1, pending_.size()); n > longest; --n) {
      if (pending_.compare(pending_.size() - n, n, text, 0, n) == 0) longest = n;
    }
  }
  return longest;
}

std::string StopFilter::push(std::string_view piece) {
  if (stopped_) return {};
  pending_ += piece;
  std::size_t shown = find_stop();
  if (shown != std::string::npos) {
    stopped_ = true;
    std::string text = pending_.substr(0, shown);
    pending_.clear();
    return text;
  }
  shown = pending_.size() - held_back();
  std::string text = pending_.substr(0, shown);
  pending_.erase(0, shown);
  has_answer_ = has_answer_ || text.find_first_not_of(kWhiteSpace) != std::string::npos;
  return text;
}

std::string StopFilter::finish() { return std::exchange(pending_, {}); }

}  // namespace quest::cli
