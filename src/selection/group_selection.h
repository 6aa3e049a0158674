// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "quest/policy.h"
#include "selection/forced_pages.h"

namespace quest {

/// From the page scores of one (row, KV head) to the list of pages that it reads (SPEC S4.4).

/// Score rows that a mode needs: one, of the folded mean query, for kGroupMean; else one a head.
constexpr std::int32_t num_score_rows(GroupMode mode, std::int32_t group) {
  return mode == GroupMode::kGroupMean ? 1 : group;
}

/// Longest list that `select_pages` may write, and the size its output must have.
std::int32_t max_selected_pages(GroupMode mode, std::int32_t group, std::int64_t page_budget,
                                std::int32_t num_pages);

/// Work space of one thread. Calls within the reserved size allocate nothing; larger ones grow it.
struct SelectionScratch {
  std::vector<float> combined;  ///< [pages + padding] one score a candidate for the whole group
  std::vector<float> log_probabilities;  ///< [group, pages + padding] of kGroupSoftmax
  std::vector<std::uint32_t> keys;       ///< [pages + padding] order keys of the candidates
  std::vector<std::uint32_t> refine;     ///< [pages + padding] for find_threshold
  std::vector<std::uint64_t> taken;      ///< [ceil(pages / 64)] candidates taken so far

  void reserve(std::int32_t group, std::int32_t num_pages);
};

/// Scores of one (row, KV head): [num_score_rows(mode, group), forced.num_pages], rows `stride`
/// floats apart. `scale` is the factor on q·k that turns a score into a logit, > 0; only
/// kGroupSoftmax uses it.
struct PageScores {
  const float* values = nullptr;
  std::int64_t stride = 0;
  std::int32_t group = 1;
  float scale = 1;

  std::span<const float> row(std::int32_t i, std::int32_t num_pages) const {
    return {values + i * stride, static_cast<std::size_t>(num_pages)};
  }
};

/// Whether any score that the mode uses is NaN.
bool any_nan(GroupMode mode, const PageScores& scores, std::int32_t num_pages);

/// Result of `select_pages` when a score was NaN; no page list is valid then (SPEC S4.8).
inline constexpr std::int32_t kNanScore = -1;

/// Writes the selected logical pages, ascending and distinct, to `pages` and returns how many, or
/// kNanScore. Forced pages come first, the other page_budget - forced.count() go to the best
/// scores; equal scores go to the lower page (SPEC S4.8). `forced` must come from the same
/// page_budget.
/// - kPerHead: every head spends the whole budget, the union is listed: up to group · budget pages.
/// - kGroupMax, kGroupMean, kGroupSoftmax: one combined score a page. The softmax of each head runs
///   over the pages that are free to choose: forced pages need no vote, and the tail page, whose
///   summary may already hold later rows of the same request, cannot sway the choice. The sum over
///   heads is ranked by its logarithm, so that pages far below the best do not tie at an
///   underflowed zero.
/// - kQuota: half of the free budget in equal private quotas, floor(half / group) a head: each head
///   in turn takes its best pages that are not taken yet; the rest goes by the mean over heads.
/// All pages are listed, and no score is read, when page_budget ≥ P.
/// pages: max_selected_pages(...) entries.
std::int32_t select_pages(GroupMode mode, const PageScores& scores, const ForcedPages& forced,
                          std::int64_t page_budget, SelectionScratch& scratch, std::int32_t* pages);

}  // namespace quest
