// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "quest/eval/arm.h"

#include <limits>

namespace quest::eval {

std::string Arm::method() const {
  return std::string(baseline ? name_of(baseline->kind) : "quest");
}

Arm full_arm() {
  Arm arm;
  arm.name = "full";
  arm.policy.dense = true;
  arm.question.dense = true;
  return arm;
}

ArmCost& ArmCost::operator+=(const ArmCost& other) {
  counters += other.counters;
  fallback_lists += other.fallback_lists;
  return *this;
}

double ArmCost::bytes_share() const {
  const AttentionCounters& attention = counters.attention;
  if (attention.dense_bytes == 0) return 0;
  return static_cast<double>(attention.bytes_read()) / static_cast<double>(attention.dense_bytes);
}

double ArmCost::kv_share() const {
  const AttentionCounters& attention = counters.attention;
  if (attention.dense_bytes == 0) return 0;
  return static_cast<double>(attention.k_bytes + attention.v_bytes) /
         static_cast<double>(attention.dense_bytes);
}

double ArmCost::tokens_per_second() const {
  if (!(counters.step_seconds > 0)) return 0;
  return static_cast<double>(counters.rows) / counters.step_seconds;
}

bool ArmCost::reads_like_dense() const {
  return counters.attention.bytes_read() >= counters.attention.dense_bytes;
}

ArmCost cost_of(const EngineCounters& counters, const SelectionPolicy& policy,
                const ModelInfo& info, std::int32_t page_size) {
  constexpr std::int64_t kAnyLength = std::numeric_limits<std::int64_t>::max();
  std::int64_t unlimited = 0;  // (layer, KV head) pairs that the policy lets read everything
  for (std::int32_t layer = 0; layer < info.num_layers; ++layer) {
    for (std::int32_t head = 0; head < info.num_kv_heads; ++head) {
      const PageBudget budget = policy.page_budget(layer, head, info.num_kv_heads, page_size);
      if (!budget.selects(kAnyLength)) ++unlimited;
    }
  }
  ArmCost cost;
  cost.counters = counters;
  cost.fallback_lists = counters.attention.dense_lists - unlimited * counters.rows;
  return cost;
}

std::int64_t forked_cache_tokens(std::int64_t prompt, std::int64_t growth, std::int64_t branches,
                                 std::int32_t page_size) {
  const auto pages = [page_size](std::int64_t tokens) {
    return (tokens + page_size - 1) / page_size;
  };
  return (pages(prompt) + branches * (pages(growth) + 1)) * page_size;
}

}  // namespace quest::eval
