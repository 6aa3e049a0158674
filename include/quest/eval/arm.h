// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "quest/engine.h"
#include "quest/eval/baseline.h"
#include "quest/policy.h"

namespace quest::eval {

/// One way of reading the cache, compared with full attention on the same tokens.
struct Arm {
  std::string name;                  ///< as tables and JSON call it, unique within a run
  SelectionPolicy policy;            ///< while text is forced or an answer is written
  SelectionPolicy question;          ///< while a question is read (SPEC S9.1)
  std::optional<Baseline> baseline;  ///< instead of the policy's scores

  /// "quest", or the baseline's name.
  std::string method() const;
};

/// Full attention: what every arm is compared with.
Arm full_arm();

/// What an arm really read and how long that took, for one item or many.
struct ArmCost {
  EngineCounters counters;  ///< `rows` are the tokens that were read
  /// (token, layer, KV head) triples that read every page although the policy sets them a budget.
  std::int64_t fallback_lists = 0;

  ArmCost& operator+=(const ArmCost& other);
  /// Bytes read, summaries included, divided by those of full attention; 0 if nothing was read.
  double bytes_share() const;
  /// The same without summaries.
  double kv_share() const;
  double tokens_per_second() const;  ///< 0 if nothing was read
  /// True if nothing was saved: an arm called sparse must not do that.
  bool reads_like_dense() const;
};

/// What `counters`, taken while `policy` ruled, cost on this model.
ArmCost cost_of(const EngineCounters& counters, const SelectionPolicy& policy,
                const ModelInfo& info, std::int32_t page_size);

/// Tokens of cache that a prompt of `prompt` tokens takes when `branches` forks of it grow by
/// `growth` tokens each: whole pages, and one more a fork for the shared tail that it copies.
std::int64_t forked_cache_tokens(std::int64_t prompt, std::int64_t growth, std::int64_t branches,
                                 std::int32_t page_size);

}  // namespace quest::eval
