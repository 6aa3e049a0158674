// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

namespace quest {

/// The pages that a row reads whatever their scores (SPEC S4.1, S4.2). They are always a prefix
/// (sinks) and a suffix (window and tail) of the row's pages, so two numbers hold them, and the
/// pages left to choose from are the range between.
struct ForcedPages {
  std::int32_t num_pages = 0;     ///< P, pages that the row sees
  std::int32_t sink_end = 0;      ///< pages [0, sink_end) are forced
  std::int32_t recent_begin = 0;  ///< pages [recent_begin, num_pages) are forced

  constexpr std::int32_t count() const { return sink_end + num_pages - recent_begin; }
  constexpr std::int32_t num_candidates() const { return recent_begin - sink_end; }
};

/// Forced pages of a row that sees `kv_len` tokens (its own included): the tail page, then the
/// pages that hold any of the last `window` tokens, nearest first, then the pages that hold the
/// first `sinks` tokens, page 0 first; cut after `page_budget` pages, so that the budget holds and
/// the tail page is the last to go. With page_budget ≥ P every page is forced.
/// kv_len ≥ 0, page_budget ≥ 1, sinks and window ≥ 0. constexpr, so that GPU code may call it.
constexpr ForcedPages forced_pages(std::int64_t kv_len, std::int32_t page_size, std::int32_t sinks,
                                   std::int32_t window, std::int64_t page_budget) {
  const std::int64_t pages = (kv_len + page_size - 1) / page_size;
  const auto num_pages = static_cast<std::int32_t>(pages);
  if (page_budget >= pages) return {num_pages, 0, 0};

  // A window of one token is the tail page, which no setting can leave out.
  const std::int64_t recent = std::max(window, 1);
  const std::int64_t window_begin = std::max<std::int64_t>(kv_len - recent, 0) / page_size;
  const std::int64_t recent_begin = std::max(window_begin, pages - page_budget);

  const std::int64_t sink_pages = (std::int64_t{sinks} + page_size - 1) / page_size;
  const std::int64_t budget_left = page_budget - (pages - recent_begin);
  const std::int64_t sink_end = std::min(std::min(sink_pages, recent_begin), budget_left);
  return {num_pages, static_cast<std::int32_t>(sink_end), static_cast<std::int32_t>(recent_begin)};
}

}  // namespace quest
