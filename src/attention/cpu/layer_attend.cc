// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
// The attend stage of LayerRun.
#include <algorithm>

#include "attention/cpu/layer_run-inl.h"
#include "attention/partial.h"

namespace quest::cpu {

namespace {

/// Fewer tokens than this are not worth another thread and a merge.
constexpr std::int64_t kTokensWorthSplitting = 128;

}  // namespace

std::int32_t LayerRun::list_pages(const List& list) const {
  if (!StepPlan::scored(list.request, list.plan, budget(list.head))) return list.plan.num_pages;
  return space_.list_count[list_index(list)];
}

/// The pages of all lists, laid end to end, are cut into one equal part a thread. A list inside
/// one part is finished there; a list that several parts share is left in fragments, and whoever
/// completes the last of them merges all in thread order, so that the result does not depend on
/// timing.
void LayerRun::attend_lists() {
  list_pages_total_ = 0;
  for_each_list([&](const List& list) { list_pages_total_ += list_pages(list); });
  const std::int64_t worth = list_pages_total_ * shape_.page_size / kTokensWorthSplitting;
  splits_ = static_cast<int>(std::clamp<std::int64_t>(worth, 1, threads_));
  if (thread_ >= splits_) return;
  const std::int64_t begin = share(thread_);
  const std::int64_t end = share(thread_ + 1);
  std::int64_t first = 0;
  for_each_list([&](const List& list) {
    const std::int64_t pages = list_pages(list);
    const std::int64_t from = std::max(begin, first);
    const std::int64_t to = std::min(end, first + pages);
    if (from < to) attend_part(list, first, from, to);
    first += pages;
  });
}

/// Arguments for pages [begin, end) of the list, counted from its own start.
AttendArgs LayerRun::part_args(const List& list, std::int64_t begin, std::int64_t end) const {
  AttendArgs args;
  args.pages = head_pages(list.request, list.head);
  args.q = query(list.row, list.head);
  args.heads = plan_.group;
  args.scale = input_.scale;
  if (StepPlan::scored(list.request, list.plan, budget(list.head))) {
    args.list = space_.pages.data() + space_.list_begin[list_index(list)] + begin;
  } else {
    args.first = static_cast<std::int32_t>(begin);
  }
  args.count = static_cast<std::int32_t>(end - begin);
  // The row's own page is always the last of its list; all others are full.
  args.last_tokens = end == list_pages(list) ? list.plan.tail_tokens : shape_.page_size;
  args.scratch = own_.kernel.data();
  return args;
}

/// Pages [begin, end) of all lists' pages, inside the list that starts at `list_first`.
void LayerRun::attend_part(const List& list, std::int64_t list_first, std::int64_t begin,
                           std::int64_t end) {
  const std::int32_t group = plan_.group;
  const std::int32_t d = shape_.head_dim;
  const std::int64_t list_end = list_first + list_pages(list);
  const bool whole = begin == list_first && end == list_end;

  AttendArgs args = part_args(list, begin - list_first, end - list_first);
  float* const fragment = space_.fragment(thread_, begin == list_first ? 1 : 0);
  args.o = whole ? output(list.row, list.head) : fragment;
  args.max = fragment + std::int64_t{group} * d;
  args.sum = args.max + group;
  kernels_.attend(args);

  if (whole) {
    for (std::int32_t h = 0; h < group; ++h) {
      float* o = args.o + std::int64_t{h} * d;
      finish(PartialAttention{{o, static_cast<std::size_t>(d)}, args.max[h], args.sum[h]}, o);
    }
    return;
  }
  int first_thread = thread_;
  while (share(first_thread) > list_first) --first_thread;
  int last_thread = thread_;
  while (share(last_thread + 1) < list_end) ++last_thread;
  std::atomic<std::int32_t>& arrived =
      space_.threads[static_cast<std::size_t>(first_thread)]->arrived;
  const std::int32_t before = arrived.fetch_add(1, std::memory_order_acq_rel);
  if (before < last_thread - first_thread) return;
  arrived.store(0, std::memory_order_relaxed);
  merge_fragments(list, first_thread, last_thread);
}

void LayerRun::merge_fragments(const List& list, int first_thread, int last_thread) {
  const std::int32_t group = plan_.group;
  const std::int32_t d = shape_.head_dim;
  const auto view = [&](int thread, std::int32_t h) {
    float* fragment = space_.fragment(thread, thread == first_thread ? 1 : 0);
    const float* state = fragment + std::int64_t{group} * d;
    return PartialAttention{
        {fragment + std::int64_t{h} * d, static_cast<std::size_t>(d)}, state[h], state[group + h]};
  };
  float* const out = output(list.row, list.head);
  for (std::int32_t h = 0; h < group; ++h) {
    PartialAttention total = view(first_thread, h);
    for (int t = first_thread + 1; t <= last_thread; ++t) merge(total, view(t, h));
    finish(total, out + std::int64_t{h} * d);
  }
}

void LayerRun::attend_tile(const RequestPlan& request, std::int32_t head, std::int32_t first) {
  PrefillArgs args;
  args.pages = head_pages(request, head);
  args.q = query(request.first_row + first, head);
  args.q_stride = input_.q_stride;
  args.out = output(request.first_row + first, head);
  args.out_stride = input_.out_stride;
  args.heads = plan_.group;
  args.rows = std::min(plan_.tile_positions, request.num_rows - first);
  args.first_position = request.first_position + first;
  args.scale = input_.scale;
  args.scratch = own_.kernel.data();
  kernels_.prefill(args);
}

/// Tiles of many rows that read everything, dealt out one by one, the longest first.
void LayerRun::attend_tiles() {
  if (tiles_ == 0) return;
  std::atomic<std::int64_t>& next = space_.tile_counters[own_.calls % 3].next;
  std::int64_t mine = next.fetch_add(1, std::memory_order_relaxed);
  std::int64_t index = 0;
  const std::int32_t positions = plan_.tile_positions;
  for (const RequestPlan& request : plan_.requests) {
    const std::int32_t tiles = (request.num_rows + positions - 1) / positions;
    for (std::int32_t tile = tiles; tile-- > 0;) {
      for (std::int32_t head = 0; head < shape_.num_kv_heads; ++head) {
        if (plan_.kind(request, budget(head)) != RowsKind::kTiles) continue;
        if (index++ != mine) continue;
        attend_tile(request, head, tile * positions);
        mine = next.fetch_add(1, std::memory_order_relaxed);
      }
    }
  }
}

}  // namespace quest::cpu
