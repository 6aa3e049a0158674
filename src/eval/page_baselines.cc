// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "eval/page_baselines.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>

#include "eval/random.h"
#include "eval/token_attention.h"

namespace quest::eval {
namespace {

/// The forced pages and the given ones.
std::vector<std::int32_t> with_forced(const ForcedPages& forced, std::vector<std::int32_t> pages) {
  for (std::int32_t p = 0; p < forced.sink_end; ++p) pages.push_back(p);
  for (std::int32_t p = forced.recent_begin; p < forced.num_pages; ++p) pages.push_back(p);
  std::sort(pages.begin(), pages.end());
  return pages;
}

/// Pages that may be chosen freely.
std::int32_t free_pages(const ForcedPages& forced, std::int64_t page_budget) {
  const std::int64_t left = page_budget - forced.count();
  return static_cast<std::int32_t>(std::clamp<std::int64_t>(left, 0, forced.num_candidates()));
}

/// [heads, num_pages] largest q·k of each page's visible tokens; the mean over the heads alone
/// where the mode wants one row.
std::vector<float> page_maxima(const HeadPages& pages, const GroupQuery& query, GroupMode mode,
                               std::int32_t num_pages) {
  const std::int32_t size = pages.page_size();
  std::vector<float> logits(static_cast<std::size_t>(size));
  std::vector<float> maxima;
  for (std::int32_t h = 0; h < query.heads; ++h) {
    const float* const q = query.q + std::int64_t{h} * pages.head_dim();
    for (std::int32_t p = 0; p < num_pages; ++p) {
      page_logits(pages, q, 1, p, logits.data());
      const std::int64_t seen = query.position + 1 - std::int64_t{p} * size;
      const auto valid = std::min<std::int64_t>(size, seen);
      maxima.push_back(*std::max_element(logits.begin(), logits.begin() + valid));
      // A comparison with NaN is false: max_element may have passed over one.
      const float sum = std::accumulate(logits.begin(), logits.begin() + valid, 0.0F);
      if (std::isnan(sum)) maxima.back() = sum;
    }
  }
  if (num_score_rows(mode, query.heads) == query.heads) return maxima;
  for (std::int32_t p = 0; p < num_pages; ++p) {
    double sum = 0;
    for (std::int32_t h = 0; h < query.heads; ++h) {
      sum += double{maxima[static_cast<std::size_t>(h) * num_pages + p]};
    }
    maxima[static_cast<std::size_t>(p)] = static_cast<float>(sum / query.heads);
  }
  return maxima;
}

}  // namespace

std::vector<std::int32_t> streaming_pages(const ForcedPages& forced, std::int64_t page_budget) {
  ForcedPages more = forced;
  more.recent_begin -= free_pages(forced, page_budget);
  return with_forced(more, {});
}

std::vector<std::int32_t> fixed_pages(const ForcedPages& forced, std::int64_t page_budget) {
  ForcedPages more = forced;
  more.sink_end += free_pages(forced, page_budget);
  return with_forced(more, {});
}

std::int64_t add_pages(std::span<const std::int32_t> more, std::int32_t num_pages,
                       std::vector<std::int32_t>& pages) {
  std::vector<std::int32_t> both;
  both.reserve(pages.size() + more.size());
  std::set_union(pages.begin(), pages.end(), more.begin(),
                 std::lower_bound(more.begin(), more.end(), num_pages), std::back_inserter(both));
  const std::size_t added = both.size() - pages.size();
  pages = std::move(both);
  return static_cast<std::int64_t>(added);
}

std::vector<std::int32_t> random_pages(const ForcedPages& forced, std::int64_t page_budget,
                                       const DrawPlace& place) {
  // Each number passes through the generator, so that neighbouring places share nothing.
  std::uint64_t state = place.seed;
  for (const std::int64_t number :
       {place.position, std::int64_t{place.layer}, std::int64_t{place.kv_head}}) {
    state = Random(state ^ static_cast<std::uint64_t>(number)).next();
  }
  Random random(state);
  std::vector<std::int32_t> candidates(static_cast<std::size_t>(forced.num_candidates()));
  std::iota(candidates.begin(), candidates.end(), forced.sink_end);
  const auto count = static_cast<std::size_t>(free_pages(forced, page_budget));
  for (std::size_t i = 0; i < count; ++i) {
    std::swap(candidates[i], candidates[i + random.below(candidates.size() - i)]);
  }
  candidates.resize(count);
  return with_forced(forced, std::move(candidates));
}

std::vector<std::int32_t> oracle_pages(const HeadPages& pages, const GroupQuery& query,
                                       GroupMode mode, const ForcedPages& forced,
                                       std::int64_t page_budget, SelectionScratch& scratch) {
  const std::int32_t num_pages = forced.num_pages;
  const std::vector<float> maxima = page_maxima(pages, query, mode, num_pages);
  scratch.reserve(query.heads, num_pages);
  std::vector<std::int32_t> list(
      static_cast<std::size_t>(max_selected_pages(mode, query.heads, page_budget, num_pages)));
  const PageScores scores{maxima.data(), num_pages, query.heads, query.scale};
  const std::int32_t count = select_pages(mode, scores, forced, page_budget, scratch, list.data());
  list.resize(count == kNanScore ? 0 : static_cast<std::size_t>(count));
  return list;
}

}  // namespace quest::eval
