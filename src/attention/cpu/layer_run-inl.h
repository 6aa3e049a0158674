// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>

#include "attention/cpu/layer_run.h"

// Members of LayerRun that more than one of its files needs.

namespace quest::cpu {

inline PageBudget LayerRun::budget(std::int32_t head) const {
  return policy_.page_budget(input_.layer, head, shape_.num_kv_heads, shape_.page_size);
}

template <class Body>
void LayerRun::for_each_list(const Body& body) const {
  for (const RequestPlan& request : plan_.requests) {
    for (std::int32_t i = 0; i < request.num_rows; ++i) {
      const std::int32_t row = request.first_row + i;
      for (std::int32_t head = 0; head < shape_.num_kv_heads; ++head) {
        if (plan_.kind(request, budget(head)) != RowsKind::kLists) continue;
        body(List{row, head, request, plan_.rows[static_cast<std::size_t>(row)]});
      }
    }
  }
}

template <class Body>
void LayerRun::for_each_scored(const Body& body) const {
  for (const RequestPlan& request : plan_.requests) {
    if (!request.sparse) continue;
    for (std::int32_t i = 0; i < request.num_rows; ++i) {
      const std::int32_t row = request.first_row + i;
      const RowPlan& plan = plan_.rows[static_cast<std::size_t>(row)];
      for (std::int32_t head = 0; head < shape_.num_kv_heads; ++head) {
        if (StepPlan::scored(request, plan, budget(head))) body(List{row, head, request, plan});
      }
    }
  }
}

inline bool LayerRun::light(const List& list) const {
  return policy_.value_threshold > 0 &&
         StepPlan::scored(list.request, list.plan, budget(list.head));
}

template <class Body>
void LayerRun::for_each_part(bool light_ones, const Body& body) const {
  if (thread_ >= splits_) return;
  const std::int64_t begin = share(thread_);
  const std::int64_t end = share(thread_ + 1);
  std::int64_t first = 0;
  std::int64_t index = 0;
  for_each_list([&](const List& list) {
    if (light(list) != light_ones) return;
    const std::int64_t last = first + list_pages(list);
    const std::int64_t from = std::max(begin, first);
    const std::int64_t to = std::min(end, last);
    if (from < to) body(Part{list, index, first, last, from, to});
    first = last;
    ++index;
  });
}

inline const float* LayerRun::query(std::int32_t row, std::int32_t head) const {
  return input_.q + row * input_.q_stride + std::int64_t{head} * plan_.group * shape_.head_dim;
}

inline float* LayerRun::output(std::int32_t row, std::int32_t head) const {
  return input_.out + row * input_.out_stride + std::int64_t{head} * plan_.group * shape_.head_dim;
}

inline std::size_t LayerRun::list_index(const List& list) const {
  return static_cast<std::size_t>(list.row) * shape_.num_kv_heads + list.head;
}

inline HeadPages LayerRun::head_pages(const RequestPlan& request, std::int32_t head) const {
  return {kv_.k_page(0, head), kv_.v_page(0, head), shape_.page_bytes(),
          request.table,       shape_.page_size,    shape_.head_dim};
}

}  // namespace quest::cpu
