// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "selection/group_selection.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "selection/combine_scores.h"
#include "selection/top_k.h"

namespace quest {

namespace {

std::span<const float> candidates(const PageScores& scores, std::int32_t row,
                                  const ForcedPages& forced) {
  return scores.row(row, forced.num_pages)
      .subspan(static_cast<std::size_t>(forced.sink_end),
               static_cast<std::size_t>(forced.num_candidates()));
}

std::size_t num_words(const ForcedPages& forced) {
  return (static_cast<std::size_t>(forced.num_candidates()) + 63) / 64;
}

/// Calls `visit(candidate)` for every candidate taken, ascending.
template <class Visit>
void for_each_taken(std::span<const std::uint64_t> taken, Visit visit) {
  for (std::size_t w = 0; w < taken.size(); ++w) {
    for (std::uint64_t bits = taken[w]; bits != 0; bits &= bits - 1) {
      visit(static_cast<std::int32_t>(w * 64) + std::countr_zero(bits));
    }
  }
}

/// Takes the k candidates of the best scores, one score each. Those already taken are out of the
/// choice when `distinct`, and may be chosen again otherwise.
void take_best(std::span<const float> scores, std::int32_t k, bool distinct,
               SelectionScratch& scratch) {
  if (k == 0) return;
  std::uint32_t* const keys = scratch.keys.data();
  const KeyRange range = make_order_keys(scores, keys);
  if (distinct) {
    for_each_taken({scratch.taken.data(), (scores.size() + 63) / 64},
                   [&](std::int32_t candidate) { keys[candidate] = kExcludedKey; });
  }
  const KeyThreshold threshold =
      find_threshold(keys, scores.size(), k, range, scratch.refine.data());
  mark_passing(keys, scores.size(), threshold, scratch.taken.data());
}

void take_per_head(const PageScores& scores, const ForcedPages& forced, std::int32_t k,
                   SelectionScratch& scratch) {
  for (std::int32_t h = 0; h < scores.group; ++h) {
    take_best(candidates(scores, h, forced), k, false, scratch);
  }
}

void take_quota(const PageScores& scores, const ForcedPages& forced, std::int32_t k,
                std::span<const float> mean, SelectionScratch& scratch) {
  const std::int32_t quota = k / 2 / scores.group;
  for (std::int32_t h = 0; h < scores.group; ++h) {
    take_best(candidates(scores, h, forced), quota, true, scratch);
  }
  take_best(mean, k - quota * scores.group, true, scratch);
}

/// Sinks, candidates taken, window and tail.
std::int32_t list_pages(const ForcedPages& forced, const SelectionScratch& scratch,
                        std::int32_t* pages) {
  std::int32_t* end = pages;
  for (std::int32_t p = 0; p < forced.sink_end; ++p) *end++ = p;
  for_each_taken({scratch.taken.data(), num_words(forced)},
                 [&](std::int32_t candidate) { *end++ = forced.sink_end + candidate; });
  for (std::int32_t p = forced.recent_begin; p < forced.num_pages; ++p) *end++ = p;
  return static_cast<std::int32_t>(end - pages);
}

}  // namespace

bool any_nan(GroupMode mode, const PageScores& scores, std::int32_t num_pages) {
  for (std::int32_t i = 0; i < num_score_rows(mode, scores.group); ++i) {
    if (has_nan(scores.row(i, num_pages))) return true;
  }
  return false;
}

std::int32_t max_selected_pages(GroupMode mode, std::int32_t group, std::int64_t page_budget,
                                std::int32_t num_pages) {
  if (page_budget >= num_pages) return num_pages;
  const std::int64_t lists = mode == GroupMode::kPerHead ? group : 1;
  return static_cast<std::int32_t>(std::min<std::int64_t>(lists * page_budget, num_pages));
}

void SelectionScratch::reserve(std::int32_t group, std::int32_t num_pages) {
  const auto pages = static_cast<std::size_t>(num_pages);
  const auto grow = [](auto& values, std::size_t size) {
    if (values.size() < size) values.resize(size);
  };
  grow(combined, pages + kScorePadding);
  grow(log_probabilities, (pages + kScorePadding) * static_cast<std::size_t>(group));
  grow(keys, pages + kKeyPadding);
  grow(refine, pages + kKeyPadding);
  grow(taken, (pages + 63) / 64);
}

std::int32_t select_pages(GroupMode mode, const PageScores& scores, const ForcedPages& forced,
                          std::int64_t page_budget, SelectionScratch& scratch,
                          std::int32_t* pages) {
  if (page_budget >= forced.num_pages) {
    std::iota(pages, pages + forced.num_pages, 0);
    return forced.num_pages;
  }
  // Forced pages are checked too: their scores never matter, but a NaN in them must not hide.
  if (any_nan(mode, scores, forced.num_pages)) return kNanScore;
  scratch.reserve(scores.group, forced.num_pages);
  const auto k = static_cast<std::int32_t>(page_budget) - forced.count();
  // A budget below P leaves candidates: the spans below are not empty.
  const auto num_candidates = static_cast<std::size_t>(forced.num_candidates());
  const std::span<const float> combined(scratch.combined.data(), num_candidates);
  const HeadScores heads{scores.values + forced.sink_end, scores.stride, scores.group,
                         num_candidates};
  std::fill_n(scratch.taken.begin(), num_words(forced), 0);
  switch (mode) {
    case GroupMode::kPerHead:
      take_per_head(scores, forced, k, scratch);
      break;
    case GroupMode::kGroupMean:
      take_best(candidates(scores, 0, forced), k, false, scratch);
      break;
    case GroupMode::kGroupMax:
      combine_max(heads, scratch.combined.data());
      take_best(combined, k, false, scratch);
      break;
    case GroupMode::kGroupSoftmax:
      combine_softmax(heads, scores.scale, scratch.log_probabilities.data(),
                      scratch.combined.data());
      take_best(combined, k, false, scratch);
      break;
    case GroupMode::kQuota:
      combine_mean(heads, scratch.combined.data());
      if (has_nan(combined)) return kNanScore;  // +inf of one head and -inf of another
      take_quota(scores, forced, k, combined, scratch);
      break;
  }
  return list_pages(forced, scratch, pages);
}

}  // namespace quest
