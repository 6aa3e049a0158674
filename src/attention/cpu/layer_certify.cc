// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
// The score and select stages of LayerRun under a policy with a certificate. Lists are dealt out
// whole: a search goes from batch to batch, and waits for nobody.
#include <algorithm>

#include "attention/cpu/layer_run-inl.h"
#include "selection/forced_pages.h"
#include "selection/rounding_margin.h"

namespace quest::cpu {

namespace {

/// Pages whose summaries are scored and then looked at again for their magnitudes, while they are
/// in the first-level cache.
constexpr std::int32_t kScanPages = 32;

}  // namespace

void LayerRun::certify_lists(StageSeconds& seconds) {
  std::atomic<std::int64_t>& next = space_.list_counters[own_.calls % 3].next;
  float* const bounds = space_.score_slot(thread_, score_rows_);
  std::int64_t mine = next.fetch_add(1, std::memory_order_relaxed);
  std::int64_t index = 0;
  for_each_scored([&](const List& list) {
    if (index++ != mine) return;
    bound_pages(list, bounds);
    lap(seconds.score);
    certify(list, bounds);
    lap(seconds.select);
    mine = next.fetch_add(1, std::memory_order_relaxed);
  });
}

/// Bounds of all pages, [group, num_pages], and the rounding margin of each head.
void LayerRun::bound_pages(const List& list, float* bounds) {
  fold_queries(list);
  MagnitudeArgs args;
  args.summaries = kv_.summary(0, list.head);
  args.stride = shape_.summary_bytes();
  args.table = list.request.table;
  args.head_dim = shape_.head_dim;
  args.magnitudes = own_.magnitudes.data();
  std::fill_n(args.magnitudes, shape_.head_dim, 0.0F);
  for (std::int32_t first = 0; first < list.plan.num_pages; first += kScanPages) {
    args.first = first;
    args.count = std::min(kScanPages, list.plan.num_pages - first);
    score(list, bounds, args.first, args.count);
    kernels_.magnitudes(args);
  }
  const float* const q = query(list.row, list.head);
  for (std::int32_t h = 0; h < plan_.group; ++h) {
    own_.margins[static_cast<std::size_t>(h)] =
        rounding_margin(q + std::int64_t{h} * shape_.head_dim, args.magnitudes, shape_.head_dim,
                        input_.scale, shape_.type, shape_.summary_type);
  }
}

void LayerRun::certify(const List& list, const float* bounds) {
  const std::size_t index = list_index(list);
  const PageScores scores{bounds, space_.scores_stride, plan_.group, input_.scale};
  if (any_nan(policy_.group_mode, scores, list.plan.num_pages)) {
    leave_nan_list(list);
    space_.searches[index] = {};
    return;
  }
  SearchStart start;
  start.bounds = bounds;
  start.stride = space_.scores_stride;
  start.margins = own_.margins.data();
  start.page_budget = budget(list.head).pages;
  start.forced = forced_pages(list.plan.position + 1, shape_.page_size, policy_.sinks,
                              policy_.window, start.page_budget);
  start.page_size = shape_.page_size;
  start.scale = input_.scale;
  CertificateSearch& search = own_.search;
  search.start(start);
  for (auto batch = search.next_batch(); !batch.empty(); batch = search.next_batch()) {
    probe(list, batch);
  }
  space_.list_count[index] = search.list(space_.pages.data() + space_.list_begin[index]);
  space_.searches[index] = {search.pages_probed(), search.epsilon()};
}

/// Reads the keys of these pages and reports their logits to the thread's search.
void LayerRun::probe(const List& list, std::span<const std::int32_t> pages) {
  const std::int32_t run = kAttendRun / shape_.page_size;
  const bool mass = policy_.certificate.kind == CertificateKind::kMass;
  ProbeArgs args;
  args.pages = head_pages(list.request, list.head);
  args.q = query(list.row, list.head);
  args.heads = plan_.group;
  args.scale = input_.scale;
  args.logits = own_.logits.data();
  args.greatest = own_.run_masses.data();
  args.sum = mass ? args.greatest + plan_.group : nullptr;
  args.scratch = own_.kernel.data();
  const auto total = static_cast<std::int32_t>(pages.size());
  for (std::int32_t first = 0; first < total; first += run) {
    args.list = pages.data() + first;
    args.count = std::min(run, total - first);
    const bool tail = args.list[args.count - 1] == list.plan.num_pages - 1;
    args.last_tokens = tail ? list.plan.tail_tokens : shape_.page_size;
    kernels_.probe(args);
    const std::int32_t tokens = (args.count - 1) * shape_.page_size + args.last_tokens;
    for (std::int32_t h = 0; h < plan_.group; ++h) {
      if (mass) {
        own_.search.add_mass(h, args.greatest[h], args.sum[h]);
      } else {
        own_.search.add_logits(h, {args.logits + std::int64_t{h} * kAttendLogitStride,
                                   static_cast<std::size_t>(tokens)});
      }
    }
  }
}

}  // namespace quest::cpu
