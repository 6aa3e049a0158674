// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "attention/cpu/step_space.h"

#include <algorithm>

#include "attention/cpu/kernels.h"

namespace quest::cpu {

namespace {

/// Longest list that any layer may select for a row that sees `num_pages`; 0 if all read all.
std::int64_t longest_selection(const SelectionPolicy& policy, const CacheShape& shape,
                               std::int32_t group, std::int32_t num_pages, std::int32_t head) {
  std::int64_t longest = 0;
  for (std::int32_t layer = 0; layer < shape.num_layers; ++layer) {
    const PageBudget budget = policy.page_budget(layer, head, shape.num_kv_heads, shape.page_size);
    if (!budget.selects(num_pages)) continue;
    if (policy.certificate.wanted()) return num_pages;
    longest = std::max<std::int64_t>(
        longest, max_selected_pages(policy.group_mode, group, budget.pages, num_pages));
    // Without a table all layers that select do so alike.
    if (policy.budget_table.empty()) break;
  }
  return longest;
}

}  // namespace

void StepSpace::begin(const Batch& batch, const KvCache& cache, const SelectionPolicy& policy,
                      std::int32_t num_q_heads, int num_threads) {
  plan.build(batch, cache, num_q_heads, num_threads);
  size_lists(cache, policy);
  size_threads(cache, policy);
  if (policy.value_threshold > 0 && plan.sparse_rows > 0) size_values(cache);
  if (policy.certificate.wanted() && plan.sparse_rows > 0) size_searches(cache, policy);
  for (WorkCounter& counter : tile_counters) counter.next = 0;
  for (WorkCounter& counter : list_counters) counter.next = 0;
  nan_place = kNoNan;
}

void StepSpace::size_lists(const KvCache& cache, const SelectionPolicy& policy) {
  const CacheShape& shape = cache.shape();
  list_begin.assign(1, 0);
  for (const RowPlan& row : plan.rows) {
    const bool sparse = plan.requests[static_cast<std::size_t>(row.request)].sparse;
    for (std::int32_t head = 0; head < shape.num_kv_heads; ++head) {
      const std::int64_t room =
          sparse ? longest_selection(policy, shape, plan.group, row.num_pages, head) : 0;
      list_begin.push_back(list_begin.back() + room);
    }
  }
  list_count.assign(list_begin.size() - 1, 0);
  if (static_cast<std::int64_t>(pages.size()) < list_begin.back()) {
    pages.resize(static_cast<std::size_t>(list_begin.back()));
  }
  if (plan.sparse_rows == 0) return;
  const std::int64_t split_lists = std::min<std::int64_t>(
      std::int64_t{plan.sparse_rows} * shape.num_kv_heads, kWholeListsPerThread * plan.threads);
  const std::int64_t slots = std::max<std::int64_t>(split_lists, plan.threads);
  scores_stride = whole_lines(plan.max_pages);
  scores.grow(slots * num_score_rows(policy.group_mode, plan.group) * scores_stride);
}

void StepSpace::size_threads(const KvCache& cache, const SelectionPolicy& policy) {
  const CacheShape& shape = cache.shape();
  const std::int32_t group = plan.group;
  fragment_floats = whole_lines(std::int64_t{group} * (shape.head_dim + 2));
  while (static_cast<int>(threads.size()) < plan.threads) {
    threads.push_back(std::make_unique<ThreadSpace>());
  }
  const std::int32_t tile_rows = plan.tile_positions * group;
  for (auto& thread : threads) {
    thread->kernel.grow(std::max(attend_scratch_floats(shape.head_dim),
                                 prefill_scratch_floats(tile_rows, shape.head_dim)));
    thread->fragments.grow(2 * fragment_floats);
    thread->calls = 0;
    thread->arrived = 0;
    thread->values_left_out = 0;
    if (plan.sparse_rows == 0) continue;
    thread->coefficients.grow(std::int64_t{num_score_rows(policy.group_mode, group)} * 2 *
                              shape.head_dim);
    thread->selection.reserve(group, plan.max_pages);
  }
}

void StepSpace::size_values(const KvCache& cache) {
  const std::int64_t page_size = cache.shape().page_size;
  std::int64_t longest = 0;
  std::int64_t lists = 0;
  for (std::size_t i = 0; i + 1 < list_begin.size(); ++i) {
    const std::int64_t room = list_begin[i + 1] - list_begin[i];
    longest = std::max(longest, room);
    lists += room > 0 ? 1 : 0;
  }
  // Many lists: a thread works on one at a time. Few, fewer than twice the threads at work: on an
  // equal share of all of them, each part beginning with a run of its own. Those at work may be
  // fewer than planned, down to two, so no share is divided by the planned number; it is less than
  // two lists.
  const std::int64_t split_lists = std::min(lists, kWholeListsPerThread * plan.threads);
  const std::int64_t share = std::min(list_begin.back() / 2, kWholeListsPerThread * longest) + 1;
  const std::int64_t share_tokens = std::max(share * page_size, 2 * kTokensWorthSplitting);
  const std::int64_t runs =
      std::max(attend_runs(longest * page_size), attend_runs(share_tokens) + split_lists);
  for (auto& thread : threads) {
    thread->runs.grow(runs * plan.group * kAttendLogitStride);
    thread->part_states.grow(2 * split_lists * plan.group);
    thread->list_state.grow(std::int64_t{3} * plan.group);
  }
}

void StepSpace::size_searches(const KvCache& cache, const SelectionPolicy& policy) {
  const CacheShape& shape = cache.shape();
  searches.assign(list_count.size(), {});
  for (auto& thread : threads) {
    thread->magnitudes.grow(whole_lines(shape.head_dim));
    thread->logits.grow(std::int64_t{plan.group} * kAttendLogitStride);
    thread->run_masses.grow(std::int64_t{2} * plan.group);
    thread->margins.resize(static_cast<std::size_t>(plan.group));
    thread->search.reserve(policy.certificate, plan.group, plan.max_pages, shape.page_size);
  }
}

}  // namespace quest::cpu
