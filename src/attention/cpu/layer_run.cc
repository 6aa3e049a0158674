// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "attention/cpu/layer_run.h"

#include <algorithm>

#include "attention/cpu/layer_run-inl.h"
#include "cache/append.h"

namespace quest::cpu {

namespace {

/// Tokens of one request and head that one thread stores at a time when there are many.
constexpr std::int64_t kWrittenTokens = 128;

}  // namespace

LayerRun::LayerRun(StepSpace& space, const KvCache& cache, const SelectionPolicy& policy,
                   const Kernels& kernels, const LayerInput& input, Team& team, int thread)
    : space_(space),
      plan_(space.plan),
      shape_(cache.shape()),
      policy_(policy),
      kernels_(kernels),
      input_(input),
      team_(team),
      thread_(thread),
      threads_(team.size()),
      own_(*space.threads[static_cast<std::size_t>(thread)]),
      kv_(cache.layer(input.layer)),
      score_rows_(num_score_rows(policy.group_mode, space.plan.group)) {}

void LayerRun::run(StageSeconds& seconds) {
  if (thread_ == 0) last_lap_ = std::chrono::steady_clock::now();
  survey();
  append();
  lap(seconds.append);
  summarise();
  // Few lists: split each over the threads. Their own pages, the only ones that this step writes
  // when every request has one row, are scored after the barrier, so that scoring need not wait.
  const bool certify = policy_.certificate.wanted();
  const bool split =
      !certify && scored_lists_ < StepSpace::kWholeListsPerThread * threads_ && threads_ > 1;
  const bool light_in_parts = split && scored_lists_ > 0 && policy_.value_threshold > 0;
  if (scored_lists_ == 0 || !split || scores_need_append_) team_.wait();
  lap(seconds.summarise);
  if (scored_lists_ > 0) {
    if (split) {
      score_split();
      team_.wait();
      lap(seconds.score);
      select_split(seconds);
    } else if (certify) {
      certify_lists(seconds);
    } else {
      score_and_select_whole(seconds);
    }
    team_.wait();
    lap(seconds.select);
  }
  if (thread_ == 0) {
    // Everybody has left the layer before this one.
    space_.tile_counters[(own_.calls + 2) % 3].next.store(0, std::memory_order_relaxed);
    space_.list_counters[(own_.calls + 2) % 3].next.store(0, std::memory_order_relaxed);
  }
  if (light_in_parts) {
    attend_light_lists();
    divide_lists(false);
    if (list_pages_total_ > 0) team_.wait();  // they need the fragments too
  }
  attend_lists();
  attend_tiles();
  ++own_.calls;
  lap(seconds.attend);
}

void LayerRun::lap(double& total) {
  if (thread_ != 0) return;
  const auto now = std::chrono::steady_clock::now();
  total += std::chrono::duration<double>(now - last_lap_).count();
  last_lap_ = now;
}

void LayerRun::survey() {
  for (const RequestPlan& request : plan_.requests) {
    for (std::int32_t head = 0; head < shape_.num_kv_heads; ++head) {
      if (plan_.kind(request, budget(head)) == RowsKind::kTiles) {
        tiles_ += (request.num_rows + plan_.tile_positions - 1) / plan_.tile_positions;
      }
    }
  }
  if (plan_.sparse_rows == 0) return;
  for_each_scored([&](const List& list) {
    ++scored_lists_;
    scored_pages_ += list.plan.num_pages - 1;
    if (list.request.num_rows > 1) scores_need_append_ = true;
  });
}

void LayerRun::append() {
  for_each_written([&](const RequestPlan& request, std::int32_t head, std::int64_t first,
                       std::int64_t count) {
    const std::int64_t row = request.first_row + first;
    const std::int64_t offset = std::int64_t{head} * shape_.head_dim;
    store_tokens(kv_, head, {request.table, static_cast<std::size_t>(request.last_pages)},
                 request.first_position + first, count, input_.k + row * input_.k_stride + offset,
                 input_.k_stride, input_.v + row * input_.v_stride + offset, input_.v_stride);
  });
}

void LayerRun::summarise() {
  for_each_written(
      [&](const RequestPlan& request, std::int32_t head, std::int64_t first, std::int64_t count) {
        fold_tokens(kv_, head, {request.table, static_cast<std::size_t>(request.last_pages)},
                    request.first_position + first, count);
      });
}

/// Calls body(request, head, first row, rows) for this thread's part of the new tokens. Pieces end
/// at page ends, so that no two threads share a page or its summary.
template <class Body>
void LayerRun::for_each_written(const Body& body) const {
  std::int64_t index = 0;
  for (const RequestPlan& request : plan_.requests) {
    for (std::int32_t head = 0; head < shape_.num_kv_heads; ++head) {
      for (std::int64_t first = 0; first < request.num_rows;) {
        const std::int64_t position = request.first_position + first;
        const std::int64_t end = (position / shape_.page_size * shape_.page_size) + kWrittenTokens -
                                 request.first_position;
        const std::int64_t last = std::min<std::int64_t>(end, request.num_rows);
        if (index++ % threads_ == thread_) body(request, head, first, last - first);
        first = last;
      }
    }
  }
}

}  // namespace quest::cpu
