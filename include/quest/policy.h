// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "quest/certificate.h"

namespace quest {

/// How the query heads that share a KV head agree on pages (SPEC S4.4). In every mode the KV head
/// reads one list and all its query heads attend to all of it: bytes once read are used.
enum class GroupMode {
  kPerHead,       ///< each query head picks its budget; the KV head reads the union
  kGroupMax,      ///< a page scores the maximum over the heads
  kGroupMean,     ///< … the mean over the heads
  kGroupSoftmax,  ///< softmax over the scores of unforced pages for each head, then summed
  kQuota,         ///< half of the free pages are private picks, the rest goes by mean score
};

/// "per-head", "group-max", "group-mean", "group-softmax", "quota".
std::string_view name_of(GroupMode mode);
std::optional<GroupMode> parse_group_mode(std::string_view text);

/// How many pages one head of one layer may read.
struct PageBudget {
  std::int64_t pages = 0;      ///< that a list selects, forced ones included
  std::int64_t crossover = 0;  ///< a row that sees at most so many pages reads them all; ≥ pages

  bool selects(std::int64_t num_pages) const { return num_pages > crossover; }
};

/// Budgets [num_layers, num_kv_heads] in tokens, found by calibration for one mean budget.
struct BudgetTable {
  std::int64_t budget = 0;
  std::vector<std::int64_t> tokens;
};

/// Which pages a decode step may read (SPEC S3.4, S4.1–S4.4, S4.8). Plain data.
struct SelectionPolicy {
  bool dense = false;  ///< full attention everywhere
  /// Tokens a KV head (a query head for kPerHead), forced pages included; floor(budget / page_size)
  /// pages are read. At least one page.
  std::int64_t budget = 512;
  std::int32_t sinks = 16;   ///< first tokens whose pages are always read
  std::int32_t window = 64;  ///< most recent tokens whose pages are always read
  std::int32_t dense_layers = 2;
  GroupMode group_mode = GroupMode::kGroupMean;
  /// 1 scores by the upper bound of the logit (SPEC S3.1), smaller values temper it (SPEC S3.4).
  float beta = 0.5F;
  /// A row that sees at most `crossover` times its budget reads everything: on such short contexts
  /// scoring and selecting cost more time than they save. ≥ 1; 1 selects wherever it can.
  float crossover = 1;
  /// What the program uses unless told otherwise: near this `quest bench decode` found the whole
  /// packaged model as fast either way, on an AVX-512 machine at a budget of 512 tokens.
  static constexpr float kMeasuredCrossover = 1.5F;
  /// Of a list that was selected, a token's value is read only if its weight for some query head
  /// of the group is at least this share of the mean weight of the list's tokens; the weights of
  /// those read then make up the whole. What a head loses is less than this share of its attention
  /// over the list. In [0, 1]; 0 reads every value.
  float value_threshold = 0;
  /// A guarantee that the lists must carry; the budget is then what a search starts with. Needs the
  /// bound of each query head: beta 1 and kPerHead.
  Certificate certificate;
  /// Optional budgets [num_layers, num_kv_heads] in tokens, instead of `budget` and `dense_layers`;
  /// kDenseBudget reads everything.
  std::vector<std::int64_t> budget_table;
  /// Optional tables by ascending budget that `with_budget` chooses from.
  std::vector<BudgetTable> calibrated;

  static constexpr std::int64_t kDenseBudget = -1;

  /// The paper's plain policy: per-head, beta 1, no sinks, no window beyond the tail page, first
  /// two layers dense.
  static SelectionPolicy paper(std::int64_t budget);

  /// The same policy for another budget. Between two calibrated tables, entries are interpolated;
  /// beyond them, and without any, those of the nearest table change in proportion, to no less than
  /// one page. An entry that reads everything in the nearest table stays so.
  SelectionPolicy with_budget(std::int64_t tokens, std::int32_t page_size) const;

  /// The same policy with a certificate and what that needs: the bound as the score, kPerHead, all
  /// values.
  SelectionPolicy with_certificate(const Certificate& wanted) const;

  /// Pages that one head of this layer may read; values ≥ any page count when dense.
  PageBudget page_budget(std::int32_t layer, std::int32_t kv_head, std::int32_t num_kv_heads,
                         std::int32_t page_size) const;
};

/// Throws InvalidArgument naming the field: budget below one page, negative sinks or window, beta
/// outside [0, 1], crossover below 1, a budget table of the wrong size, calibrated tables that are
/// not ascending, value_threshold outside [0, 1], a certificate out of range, or without the bound
/// of each query head as the score, or with values left out.
void validate(const SelectionPolicy& policy, std::int32_t num_layers, std::int32_t num_kv_heads,
              std::int32_t page_size);

}  // namespace quest
