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

bool has_nan(std::span<const float> values) {
  int nan = 0;
  for (float x : values) nan |= static_cast<int>(x != x);
  return nan != 0;
}

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

/// Lists the sinks, then what `list_candidates(out)` writes, then window and tail.
template <class ListCandidates>
std::int32_t list_with_forced(const ForcedPages& forced, std::int32_t* pages,
                              ListCandidates list_candidates) {
  std::iota(pages, pages + forced.sink_end, 0);
  std::int32_t count = forced.sink_end;
  const std::int32_t chosen = list_candidates(pages + count);
  if (chosen == kNanScore) return kNanScore;
  count += chosen;
  const std::int32_t recent = forced.num_pages - forced.recent_begin;
  std::iota(pages + count, pages + count + recent, forced.recent_begin);
  return count + recent;
}

/// The k best candidates of one score each. The slot that list_passing scribbles on exists: the
/// tail page is forced and comes after.
std::int32_t select_single(std::span<const float> scores, const ForcedPages& forced, std::int32_t k,
                           SelectionScratch& scratch, std::int32_t* pages) {
  if (!make_order_keys(scores, scratch.keys.data())) return kNanScore;
  return list_with_forced(forced, pages, [&](std::int32_t* out) {
    if (k == 0) return 0;
    const std::span<const std::uint32_t> keys(scratch.keys.data(), scores.size());
    return list_passing(keys, find_threshold(keys, k, scratch.refine), forced.sink_end, out);
  });
}

/// Marks the k candidates of the best scores as taken. Those already taken are out of the choice
/// when `distinct`, and may be chosen again otherwise.
void take_best(std::span<const float> scores, std::int32_t k, bool distinct,
               SelectionScratch& scratch) {
  if (k == 0) return;
  make_order_keys(scores, scratch.keys.data());
  for (std::size_t i = 0; i < scores.size() && distinct; ++i) {
    if ((scratch.taken[i / 64] >> (i % 64) & 1U) != 0) scratch.keys[i] = kExcludedKey;
  }
  const std::span<const std::uint32_t> keys(scratch.keys.data(), scores.size());
  const KeyThreshold threshold = find_threshold(keys, k, scratch.refine);
  const std::int32_t count = list_passing(keys, threshold, 0, scratch.picks.data());
  for (std::int32_t i = 0; i < count; ++i) {
    const auto pick = static_cast<std::uint32_t>(scratch.picks[static_cast<std::size_t>(i)]);
    scratch.taken[pick / 64] |= std::uint64_t{1} << (pick % 64);
  }
}

std::int32_t list_taken(const ForcedPages& forced, const SelectionScratch& scratch,
                        std::int32_t* pages) {
  return list_with_forced(forced, pages, [&](std::int32_t* out) {
    std::int32_t count = 0;
    const std::int32_t words = (forced.num_candidates() + 63) / 64;
    for (std::int32_t w = 0; w < words; ++w) {
      for (std::uint64_t bits = scratch.taken[static_cast<std::size_t>(w)]; bits != 0;
           bits &= bits - 1) {
        out[count++] = forced.sink_end + w * 64 + std::countr_zero(bits);
      }
    }
    return count;
  });
}

std::int32_t select_per_head(const PageScores& scores, const ForcedPages& forced, std::int32_t k,
                             SelectionScratch& scratch, std::int32_t* pages) {
  std::ranges::fill(scratch.taken, 0);
  for (std::int32_t h = 0; h < scores.group; ++h) {
    take_best(candidates(scores, h, forced), k, false, scratch);
  }
  return list_taken(forced, scratch, pages);
}

std::int32_t select_quota(const PageScores& scores, const ForcedPages& forced, std::int32_t k,
                          SelectionScratch& scratch, std::span<float> mean, std::int32_t* pages) {
  if (!combine_mean(scores, forced, mean)) return kNanScore;
  std::ranges::fill(scratch.taken, 0);
  const std::int32_t quota = k / 2 / scores.group;
  for (std::int32_t h = 0; h < scores.group; ++h) {
    take_best(candidates(scores, h, forced), quota, true, scratch);
  }
  take_best(mean, k - quota * scores.group, true, scratch);
  return list_taken(forced, scratch, pages);
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
  grow(keys, pages);
  grow(refine, pages);
  grow(picks, pages + 1);
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
  const std::span<float> combined(scratch.combined.data(),
                                  static_cast<std::size_t>(forced.num_candidates()));
  switch (mode) {
    case GroupMode::kPerHead:
      return select_per_head(scores, forced, k, scratch, pages);
    case GroupMode::kQuota:
      return select_quota(scores, forced, k, scratch, combined, pages);
    case GroupMode::kGroupMean:
      return select_single(candidates(scores, 0, forced), forced, k, scratch, pages);
    case GroupMode::kGroupMax:
      combine_max(scores, forced, combined);
      break;
    case GroupMode::kGroupSoftmax:
      if (!combined.empty()) {
        combine_softmax(scores, forced, scratch.log_probabilities, combined);
      }
      break;
  }
  return select_single(combined, forced, k, scratch, pages);
}

}  // namespace quest
