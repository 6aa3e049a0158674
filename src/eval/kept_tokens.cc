// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "eval/kept_tokens.h"

#include <algorithm>
#include <numeric>

namespace quest::eval {

KeptTokens::KeptTokens(std::vector<double> scores) : scores_(std::move(scores)) {
  tokens_.resize(scores_.size());
  std::iota(tokens_.begin(), tokens_.end(), std::int64_t{0});
}

void KeptTokens::evict(std::int64_t most, std::int64_t recent) {
  const std::int64_t excess = size() - most;
  if (excess <= 0) return;
  const std::int64_t at_risk = std::max(size() - recent, excess);
  std::vector<std::int64_t> order(static_cast<std::size_t>(at_risk));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  const auto worse = [this](std::int64_t a, std::int64_t b) {
    const double left = scores_[static_cast<std::size_t>(a)];
    const double right = scores_[static_cast<std::size_t>(b)];
    return left != right ? left < right : a < b;
  };
  std::nth_element(order.begin(), order.begin() + (excess - 1), order.end(), worse);
  std::vector<bool> gone(tokens_.size(), false);
  for (std::int64_t i = 0; i < excess; ++i) {
    gone[static_cast<std::size_t>(order[static_cast<std::size_t>(i)])] = true;
  }
  std::size_t next = 0;
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    if (gone[i]) continue;
    tokens_[next] = tokens_[i];
    scores_[next] = scores_[i];
    ++next;
  }
  tokens_.resize(next);
  scores_.resize(next);
}

void KeptTokens::append(std::int64_t token) {
  tokens_.push_back(token);
  scores_.push_back(0);
}

void KeptTokens::add_scores(std::span<const double> weights) {
  for (std::size_t i = 0; i < scores_.size(); ++i) scores_[i] += weights[i];
}

void KeptTokens::set_scores(std::span<const double> weights) {
  scores_.assign(weights.begin(), weights.end());
}

}  // namespace quest::eval
