// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "selection/forced_pages.h"

#include <algorithm>

namespace quest {

ForcedPages forced_pages(std::int64_t kv_len, std::int32_t page_size, std::int32_t sinks,
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
  const std::int64_t sink_end = std::min({sink_pages, recent_begin, budget_left});
  return {num_pages, static_cast<std::int32_t>(sink_end), static_cast<std::int32_t>(recent_begin)};
}

}  // namespace quest
