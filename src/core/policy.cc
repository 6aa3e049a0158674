// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "quest/policy.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <sstream>
#include <string>

#include "quest/error.h"

namespace quest {

namespace {

constexpr GroupMode kGroupModes[] = {GroupMode::kPerHead, GroupMode::kGroupMax,
                                     GroupMode::kGroupMean, GroupMode::kGroupSoftmax,
                                     GroupMode::kQuota};

void check_budget(const std::string& field, std::int64_t budget, std::int32_t page_size,
                  const char* alternative) {
  if (budget >= page_size) return;
  std::ostringstream text;
  text << field << ' ' << budget << " is less than one page of " << page_size
       << " tokens; give at least " << page_size << alternative;
  throw InvalidArgument(text.str());
}

void check_not_negative(const char* field, std::int32_t value) {
  if (value >= 0) return;
  throw InvalidArgument(std::string(field) + ' ' + std::to_string(value) +
                        " is negative; give 0 or more");
}

void check_certificate(const SelectionPolicy& policy) {
  validate(policy.certificate);
  if (!policy.certificate.wanted()) return;
  const std::string wanted = "certificate " + to_string(policy.certificate);
  if (policy.beta != 1) {
    std::ostringstream text;
    text << wanted << " is proven from the bound, not from beta " << policy.beta
         << "; give beta 1 (see with_certificate)";
    throw InvalidArgument(text.str());
  }
  if (policy.group_mode != GroupMode::kPerHead) {
    std::ostringstream text;
    text << wanted << " is proven for each query head, not for group_mode "
         << name_of(policy.group_mode) << "; give per-head (see with_certificate)";
    throw InvalidArgument(text.str());
  }
  if (policy.value_threshold != 0) {
    std::ostringstream text;
    text << wanted << " counts every value of a list, but value_threshold "
         << policy.value_threshold << " leaves some out; give 0 (see with_certificate)";
    throw InvalidArgument(text.str());
  }
}

void check_budget_table(const std::vector<std::int64_t>& table, std::int32_t num_layers,
                        std::int32_t num_kv_heads, std::int32_t page_size) {
  const std::int64_t expected = std::int64_t{num_layers} * num_kv_heads;
  const auto entries = static_cast<std::int64_t>(table.size());
  if (entries != expected) {
    std::ostringstream text;
    text << "budget_table has " << entries << " entries; give " << num_layers << " layers x "
         << num_kv_heads << " KV heads = " << expected;
    throw InvalidArgument(text.str());
  }
  for (std::int64_t i = 0; i < entries; ++i) {
    const std::int64_t budget = table[static_cast<std::size_t>(i)];
    if (budget == SelectionPolicy::kDenseBudget) continue;
    std::ostringstream field;
    field << "budget_table[layer " << i / num_kv_heads << ", KV head " << i % num_kv_heads << ']';
    check_budget(field.str(), budget, page_size, ", or -1 to read everything");
  }
}

void check_ascending(const std::vector<BudgetTable>& tables) {
  std::int64_t last = 0;
  for (const BudgetTable& table : tables) {
    if (table.budget <= last) {
      throw InvalidArgument("calibrated budget " + std::to_string(table.budget) +
                            " is not above the one before; give them in ascending order");
    }
    last = table.budget;
  }
}

/// An entry of one table at `factor` times its budget.
std::int64_t scaled(std::int64_t entry, double factor, std::int32_t page_size) {
  if (entry == SelectionPolicy::kDenseBudget) return entry;
  return std::max<std::int64_t>(page_size, std::llround(static_cast<double>(entry) * factor));
}

/// The table for a budget from those of a calibration, at least one. No entry is below one page.
std::vector<std::int64_t> table_for(const std::vector<BudgetTable>& tables, std::int64_t budget,
                                    std::int32_t page_size) {
  const auto above = std::find_if(tables.begin(), tables.end(), [budget](const BudgetTable& table) {
    return table.budget >= budget;
  });
  const BudgetTable& high = above == tables.end() ? tables.back() : *above;
  const BudgetTable& low = above == tables.begin() ? tables.front() : *(above - 1);
  const auto distance = static_cast<double>(high.budget - low.budget);
  std::vector<std::int64_t> result;
  result.reserve(high.tokens.size());
  for (std::size_t i = 0; i < high.tokens.size(); ++i) {
    const std::int64_t a = low.tokens[i];
    const std::int64_t b = high.tokens[i];
    const bool dense = a == SelectionPolicy::kDenseBudget || b == SelectionPolicy::kDenseBudget;
    if (distance > 0 && !dense) {
      const double share = static_cast<double>(budget - low.budget) / distance;
      const double between = static_cast<double>(a) + share * static_cast<double>(b - a);
      result.push_back(std::max<std::int64_t>(page_size, std::llround(between)));
      continue;
    }
    const bool lower_is_nearer = budget - low.budget < high.budget - budget;
    const BudgetTable& nearest = lower_is_nearer ? low : high;
    result.push_back(scaled(nearest.tokens[i],
                            static_cast<double>(budget) / static_cast<double>(nearest.budget),
                            page_size));
  }
  return result;
}

}  // namespace

std::string_view name_of(GroupMode mode) {
  switch (mode) {
    case GroupMode::kPerHead:
      return "per-head";
    case GroupMode::kGroupMax:
      return "group-max";
    case GroupMode::kGroupMean:
      return "group-mean";
    case GroupMode::kGroupSoftmax:
      return "group-softmax";
    case GroupMode::kQuota:
      return "quota";
  }
  return "?";
}

std::optional<GroupMode> parse_group_mode(std::string_view text) {
  for (GroupMode mode : kGroupModes) {
    if (text == name_of(mode)) return mode;
  }
  return std::nullopt;
}

SelectionPolicy SelectionPolicy::paper(std::int64_t budget) {
  SelectionPolicy policy;
  policy.budget = budget;
  policy.sinks = 0;
  policy.window = 0;
  policy.dense_layers = 2;
  policy.group_mode = GroupMode::kPerHead;
  policy.beta = 1;
  return policy;
}

SelectionPolicy SelectionPolicy::with_budget(std::int64_t tokens, std::int32_t page_size) const {
  SelectionPolicy policy = *this;
  policy.budget = tokens;
  if (!calibrated.empty()) {
    policy.budget_table = table_for(calibrated, tokens, page_size);
    return policy;
  }
  const double factor = static_cast<double>(tokens) / static_cast<double>(budget);
  for (std::int64_t& entry : policy.budget_table) entry = scaled(entry, factor, page_size);
  return policy;
}

SelectionPolicy SelectionPolicy::with_certificate(const Certificate& wanted) const {
  SelectionPolicy policy = *this;
  policy.certificate = wanted;
  policy.beta = 1;
  policy.group_mode = GroupMode::kPerHead;
  policy.value_threshold = 0;
  return policy;
}

PageBudget SelectionPolicy::page_budget(std::int32_t layer, std::int32_t kv_head,
                                        std::int32_t num_kv_heads, std::int32_t page_size) const {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  constexpr PageBudget kEverything{kMost, kMost};
  if (dense) return kEverything;
  std::int64_t tokens = layer < dense_layers ? kDenseBudget : budget;
  if (!budget_table.empty()) {
    const std::int64_t index = std::int64_t{layer} * num_kv_heads + kv_head;
    tokens = budget_table[static_cast<std::size_t>(index)];
  }
  if (tokens == kDenseBudget) return kEverything;
  const std::int64_t pages = tokens / page_size;
  const double most = static_cast<double>(pages) * crossover;
  return {pages, most < 0x1p62 ? static_cast<std::int64_t>(most) : kMost};
}

void validate(const SelectionPolicy& policy, std::int32_t num_layers, std::int32_t num_kv_heads,
              std::int32_t page_size) {
  if (policy.budget_table.empty()) {
    check_budget("budget", policy.budget, page_size, "");
  } else {
    check_budget_table(policy.budget_table, num_layers, num_kv_heads, page_size);
  }
  check_ascending(policy.calibrated);
  for (const BudgetTable& table : policy.calibrated) {
    check_budget_table(table.tokens, num_layers, num_kv_heads, 1);  // `with_budget` rounds up
  }
  check_not_negative("sinks", policy.sinks);
  check_not_negative("window", policy.window);
  check_not_negative("dense_layers", policy.dense_layers);
  // Written so that NaN fails too.
  if (!(policy.beta >= 0 && policy.beta <= 1)) {
    std::ostringstream text;
    text << "beta " << policy.beta << " is outside [0, 1]; give 1 for the bound or less to temper";
    throw InvalidArgument(text.str());
  }
  if (!(policy.value_threshold >= 0 && policy.value_threshold <= 1)) {
    std::ostringstream text;
    text << "value_threshold " << policy.value_threshold
         << " is outside [0, 1]; give 0 to read every value or a share of the mean weight";
    throw InvalidArgument(text.str());
  }
  if (!(policy.crossover >= 1)) {
    std::ostringstream text;
    text << "crossover " << policy.crossover << " is below 1; give 1 to select wherever possible";
    throw InvalidArgument(text.str());
  }
  check_certificate(policy);
}

}  // namespace quest
