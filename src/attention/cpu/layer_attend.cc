// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
// The attend stage of LayerRun.
#include <algorithm>

#include "attention/cpu/layer_run-inl.h"
#include "attention/partial.h"

namespace quest::cpu {

std::int32_t LayerRun::list_pages(const List& list) const {
  if (!StepPlan::scored(list.request, list.plan, budget(list.head))) return list.plan.num_pages;
  return space_.list_count[list_index(list)];
}

void LayerRun::divide_lists(bool light_ones) {
  list_pages_total_ = 0;
  for_each_list([&](const List& list) {
    if (light(list) == light_ones) list_pages_total_ += list_pages(list);
  });
  const std::int64_t worth =
      list_pages_total_ * shape_.page_size / StepSpace::kTokensWorthSplitting;
  splits_ = static_cast<int>(std::clamp<std::int64_t>(worth, 1, threads_));
}

/// The pages of all lists, laid end to end, are cut into one equal part a thread. A list inside
/// one part is finished there; a list that several parts share is left in fragments, and whoever
/// completes the last of them merges all in thread order, so that the result does not depend on
/// timing.
void LayerRun::attend_lists() {
  divide_lists(false);
  for_each_part(false, [&](const Part& part) { attend_part(part); });
}

/// The part's result goes to the output if it is the whole list, or to its fragment.
AttendArgs LayerRun::part_args(const Part& part) const {
  const List& list = part.list;
  const std::int64_t begin = part.begin - part.list_first;
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
  args.count = static_cast<std::int32_t>(part.end - part.begin);
  // The row's own page is always the last of its list; all others are full.
  args.last_tokens = part.end == part.list_end ? list.plan.tail_tokens : shape_.page_size;
  float* const fragment = space_.fragment(thread_, part.fragment());
  args.o = part.whole() ? output(list.row, list.head) : fragment;
  args.max = fragment + std::int64_t{plan_.group} * shape_.head_dim;
  args.sum = args.max + plan_.group;
  args.scratch = own_.kernel.data();
  return args;
}

void LayerRun::attend_part(const Part& part) {
  const AttendArgs args = part_args(part);
  kernels_.attend(args);
  finish_part(part, args);
}

/// The part's o, max and sum stand where `args` says. Whoever completes the last part of a list
/// merges them all.
void LayerRun::finish_part(const Part& part, const AttendArgs& args) {
  if (part.whole()) {
    const std::int32_t d = shape_.head_dim;
    for (std::int32_t h = 0; h < args.heads; ++h) {
      float* o = args.o + std::int64_t{h} * d;
      finish(PartialAttention{{o, static_cast<std::size_t>(d)}, args.max[h], args.sum[h]}, o);
    }
    return;
  }
  const Sharers threads = sharers(part);
  std::atomic<std::int32_t>& arrived =
      space_.threads[static_cast<std::size_t>(threads.first)]->arrived;
  const std::int32_t before = arrived.fetch_add(1, std::memory_order_acq_rel);
  if (before < threads.last - threads.first) return;
  arrived.store(0, std::memory_order_relaxed);
  merge_fragments(part.list, threads.first, threads.last);
}

/// The threads whose shares hold pages of the part's list, this one among them.
LayerRun::Sharers LayerRun::sharers(const Part& part) const {
  Sharers threads{thread_, thread_};
  while (share(threads.first) > part.list_first) --threads.first;
  while (share(threads.last + 1) < part.list_end) ++threads.last;
  return threads;
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
