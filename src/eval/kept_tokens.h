// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace quest::eval {

/// The tokens that one KV head of one layer has not evicted, oldest first, each with the score by
/// which it stays.
class KeptTokens {
 public:
  KeptTokens() = default;
  /// Tokens 0 … scores.size() - 1.
  explicit KeptTokens(std::vector<double> scores);

  /// Drops the lowest scores, of equal ones the oldest, until `most` are left. The last `recent`
  /// are safe, unless they alone are more than `most`.
  void evict(std::int64_t most, std::int64_t recent);
  /// A newer token than all others.
  void append(std::int64_t token);
  /// weights: one a token.
  void add_scores(std::span<const double> weights);
  void set_scores(std::span<const double> weights);

  std::span<const std::int64_t> tokens() const { return tokens_; }
  std::int64_t size() const { return static_cast<std::int64_t>(tokens_.size()); }

 private:
  std::vector<std::int64_t> tokens_;
  std::vector<double> scores_;
};

}  // namespace quest::eval
