// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "eval/head_probe.h"
#include "quest/eval/baseline.h"
#include "quest/policy.h"
#include "selection/forced_pages.h"
#include "selection/group_selection.h"

namespace quest::eval {

/// Page lists of the baselines that read whole pages: logical pages, ascending, forced ones
/// included. `forced` must come from the same page_budget, which is less than the pages seen.

/// The sinks' pages and the most recent ones.
std::vector<std::int32_t> streaming_pages(const ForcedPages& forced, std::int64_t page_budget);

/// The forced pages and the first others.
std::vector<std::int32_t> fixed_pages(const ForcedPages& forced, std::int64_t page_budget);

/// Adds those of `more` that are missing and below `num_pages`; all lists ascend. Returns how many.
std::int64_t add_pages(std::span<const std::int32_t> more, std::int32_t num_pages,
                       std::vector<std::int32_t>& pages);

/// Which draw: another for every one of these.
struct DrawPlace {
  std::uint64_t seed = 0;
  std::int64_t position = 0;
  std::int32_t layer = 0;
  std::int32_t kv_head = 0;
};

/// The forced pages and others drawn evenly, without replacement.
std::vector<std::int32_t> random_pages(const ForcedPages& forced, std::int64_t page_budget,
                                       const DrawPlace& place);

/// The query heads of one KV head, of one row.
struct GroupQuery {
  const float* q = nullptr;  ///< [heads, head_dim]
  std::int32_t heads = 1;
  float scale = 1;
  std::int64_t position = 0;  ///< of the row's token; it sees the tokens up to itself
};

/// What `select_pages` chooses when every page's score is the largest q·k of its tokens. Returns
/// an empty list if a logit is NaN.
std::vector<std::int32_t> oracle_pages(const HeadPages& pages, const GroupQuery& query,
                                       GroupMode mode, const ForcedPages& forced,
                                       std::int64_t page_budget, SelectionScratch& scratch);

}  // namespace quest::eval
