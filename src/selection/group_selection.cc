// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "selection/group_selection.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>

#include "selection/top_k.h"

namespace quest {

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

bool any_row_has_nan(GroupMode mode, const PageScores& scores, std::int32_t num_pages) {
  for (std::int32_t i = 0; i < num_score_rows(mode, scores.group); ++i) {
    if (has_nan(scores.row(i, num_pages))) return true;
  }
  return false;
}

// The combined scores cover the candidates alone: combined[i] is page sink_end + i.

std::span<const float> candidates(const PageScores& scores, std::int32_t row,
                                  const ForcedPages& forced) {
  return scores.row(row, forced.num_pages)
      .subspan(static_cast<std::size_t>(forced.sink_end),
               static_cast<std::size_t>(forced.num_candidates()));
}

void combine_max(const PageScores& scores, const ForcedPages& forced, std::span<float> combined) {
  std::ranges::copy(candidates(scores, 0, forced), combined.begin());
  for (std::int32_t h = 1; h < scores.group; ++h) {
    const auto row = candidates(scores, h, forced);
    for (std::size_t i = 0; i < row.size(); ++i) combined[i] = std::max(combined[i], row[i]);
  }
}

/// False if a mean is NaN although no score is: +inf of one head and -inf of another.
bool combine_mean(const PageScores& scores, const ForcedPages& forced, std::span<float> combined) {
  std::ranges::fill(combined, 0.0F);
  for (std::int32_t h = 0; h < scores.group; ++h) {
    const auto row = candidates(scores, h, forced);
    for (std::size_t i = 0; i < row.size(); ++i) combined[i] += row[i];
  }
  for (float& x : combined) x /= static_cast<float>(scores.group);
  return !has_nan(combined);
}

/// Logarithm of the softmax over pages of scale · score. When the greatest score is infinite, the
/// pages that hold it share all of the mass.
void log_softmax(std::span<const float> row, float scale, float* out) {
  const float top = *std::ranges::max_element(row);
  if (std::isinf(top)) {
    const float share = -std::log(static_cast<float>(std::ranges::count(row, top)));
    std::ranges::transform(row, out, [=](float x) { return x == top ? share : -kInfinity; });
    return;
  }
  double sum = 0;
  for (float x : row) sum += std::exp(scale * (x - top));
  const auto log_sum = static_cast<float>(std::log(sum));
  std::ranges::transform(row, out, [=](float x) { return scale * (x - top) - log_sum; });
}

void combine_softmax(const PageScores& scores, const ForcedPages& forced,
                     std::vector<float>& log_probabilities, std::span<float> combined) {
  const std::size_t num_candidates = combined.size();
  const auto group = static_cast<std::size_t>(scores.group);
  float* const logs = log_probabilities.data();
  for (std::size_t h = 0; h < group; ++h) {
    log_softmax(candidates(scores, static_cast<std::int32_t>(h), forced), scores.scale,
                logs + h * num_candidates);
  }
  for (std::size_t i = 0; i < num_candidates; ++i) {
    float top = -kInfinity;
    for (std::size_t h = 0; h < group; ++h) top = std::max(top, logs[h * num_candidates + i]);
    combined[i] = top;
    if (top == -kInfinity) continue;
    float sum = 0;
    for (std::size_t h = 0; h < group; ++h) sum += std::exp(logs[h * num_candidates + i] - top);
    combined[i] += std::log(sum);
  }
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
  grow(combined, pages);
  grow(log_probabilities, pages * static_cast<std::size_t>(group));
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
  if (any_row_has_nan(mode, scores, forced.num_pages)) return kNanScore;
  scratch.reserve(scores.group, forced.num_pages);
  const auto k = static_cast<std::int32_t>(page_budget) - forced.count();
  // A budget below P leaves candidates: `combined` is not empty.
  const std::span<float> combined(scratch.combined.data(),
                                  static_cast<std::size_t>(forced.num_candidates()));
  std::fill_n(scratch.taken.begin(), num_words(forced), 0);
  switch (mode) {
    case GroupMode::kPerHead:
      take_per_head(scores, forced, k, scratch);
      break;
    case GroupMode::kGroupMean:
      take_best(candidates(scores, 0, forced), k, false, scratch);
      break;
    case GroupMode::kGroupMax:
      combine_max(scores, forced, combined);
      take_best(combined, k, false, scratch);
      break;
    case GroupMode::kGroupSoftmax:
      combine_softmax(scores, forced, scratch.log_probabilities, combined);
      take_best(combined, k, false, scratch);
      break;
    case GroupMode::kQuota:
      if (!combine_mean(scores, forced, combined)) return kNanScore;
      take_quota(scores, forced, k, combined, scratch);
      break;
  }
  return list_pages(forced, scratch, pages);
}

}  // namespace quest
