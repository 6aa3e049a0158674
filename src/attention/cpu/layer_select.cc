// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
// The score and select stages of LayerRun.
#include <algorithm>

#include "attention/cpu/layer_run-inl.h"
#include "selection/fold_query.h"
#include "selection/forced_pages.h"

namespace quest::cpu {

/// Scores this thread's equal part of all pages of all scored lists, the rows' own pages apart.
void LayerRun::score_split() {
  const std::int64_t begin = scored_pages_ * thread_ / threads_;
  const std::int64_t end = scored_pages_ * (thread_ + 1) / threads_;
  std::int64_t first = 0;  // of the list, counted over all lists
  std::int64_t slot = 0;
  for_each_scored([&](const List& list) {
    const std::int64_t pages = list.plan.num_pages - 1;
    const std::int64_t from = std::max(begin, first);
    const std::int64_t to = std::min(end, first + pages);
    if (from < to) {
      fold_queries(list);
      score(list, space_.score_slot(slot, score_rows_), static_cast<std::int32_t>(from - first),
            static_cast<std::int32_t>(to - from));
    }
    first += pages;
    ++slot;
  });
}

void LayerRun::select_split(StageSeconds& seconds) {
  std::int64_t slot = 0;
  for_each_scored([&](const List& list) {
    if (slot % threads_ == thread_) {
      float* scores = space_.score_slot(slot, score_rows_);
      fold_queries(list);
      score(list, scores, list.plan.num_pages - 1, 1);
      select(list, scores);
    }
    ++slot;
  });
  lap(seconds.select);
}

void LayerRun::score_and_select_whole(StageSeconds& seconds) {
  std::atomic<std::int64_t>& next = space_.list_counters[own_.calls % 3].next;
  float* const scores = space_.score_slot(thread_, score_rows_);
  std::int64_t mine = next.fetch_add(1, std::memory_order_relaxed);
  std::int64_t index = 0;
  for_each_scored([&](const List& list) {
    if (index++ != mine) return;
    fold_queries(list);
    score(list, scores, 0, list.plan.num_pages);
    lap(seconds.score);
    select(list, scores);
    lap(seconds.select);
    if (light(list)) attend_light_list(list);
    lap(seconds.attend);
    mine = next.fetch_add(1, std::memory_order_relaxed);
  });
}

/// Coefficients of the list's query heads, folded to one row where the mode allows.
void LayerRun::fold_queries(const List& list) {
  const float* q = query(list.row, list.head);
  const std::int32_t d = shape_.head_dim;
  const auto fold = shape_.summary_type == SummaryType::kQ4 ? fold_query_to_box : fold_query;
  if (score_rows_ == 1) {
    fold(q, d, plan_.group, d, policy_.beta, own_.coefficients.data());
    return;
  }
  for (std::int32_t h = 0; h < score_rows_; ++h) {
    fold(q + std::int64_t{h} * d, d, 1, d, policy_.beta,
         own_.coefficients.data() + std::int64_t{2} * h * d);
  }
}

void LayerRun::score(const List& list, float* scores, std::int32_t first, std::int32_t count) {
  ScoreArgs args;
  args.summaries = kv_.summary(0, list.head);
  args.stride = shape_.summary_bytes();
  args.table = list.request.table;
  args.head_dim = shape_.head_dim;
  args.coefficients = own_.coefficients.data();
  args.rows = score_rows_;
  args.first = first;
  args.count = count;
  args.scores = scores;
  args.scores_stride = space_.scores_stride;
  kernels_.score(args);
}

void LayerRun::select(const List& list, const float* scores) {
  const std::int64_t pages = budget(list.head).pages;
  const ForcedPages forced =
      forced_pages(list.plan.position + 1, shape_.page_size, policy_.sinks, policy_.window, pages);
  const std::size_t index = list_index(list);
  std::int32_t* const out = space_.pages.data() + space_.list_begin[index];
  const PageScores values{scores, space_.scores_stride, plan_.group, input_.scale};
  const std::int32_t count =
      select_pages(policy_.group_mode, values, forced, pages, own_.selection, out);
  if (count == kNanScore) {
    leave_nan_list(list);
    return;
  }
  space_.list_count[index] = count;
}

/// Some list must stand until the step ends and reports the NaN: the tail page alone.
void LayerRun::leave_nan_list(const List& list) {
  report_nan(list);
  const std::size_t index = list_index(list);
  space_.pages[static_cast<std::size_t>(space_.list_begin[index])] = list.plan.num_pages - 1;
  space_.list_count[index] = 1;
}

void LayerRun::report_nan(const List& list) {
  const auto rows = static_cast<std::int64_t>(plan_.rows.size());
  const std::int64_t place = (input_.layer * rows + list.row) * shape_.num_kv_heads + list.head;
  std::int64_t least = space_.nan_place.load(std::memory_order_relaxed);
  while (place < least &&
         !space_.nan_place.compare_exchange_weak(least, place, std::memory_order_relaxed)) {
  }
}

}  // namespace quest::cpu
