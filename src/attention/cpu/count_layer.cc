// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "attention/cpu/layer_run.h"

namespace quest::cpu {

void count_layer(const StepSpace& space, const CacheShape& shape, const SelectionPolicy& policy,
                 std::int32_t layer, AttentionCounters& counters) {
  std::int64_t pages_read = 0;
  std::int64_t pages_seen = 0;
  std::int64_t pages_scored = 0;
  std::int64_t pages_probed = 0;
  std::size_t index = 0;
  for (const RowPlan& row : space.plan.rows) {
    const RequestPlan& request = space.plan.requests[static_cast<std::size_t>(row.request)];
    for (std::int32_t head = 0; head < shape.num_kv_heads; ++head, ++index) {
      std::int32_t read = row.num_pages;
      if (request.sparse &&
          StepPlan::scored(request, row,
                           policy.page_budget(layer, head, shape.num_kv_heads, shape.page_size))) {
        read = space.list_count[index];
        pages_scored += row.num_pages;
        if (policy.certificate.wanted()) {
          const SearchResult& search = space.searches[index];
          pages_probed += search.pages_probed;
          counters.certificates.add(read, row.num_pages, search.epsilon);
        }
      }
      pages_read += read;
      pages_seen += row.num_pages;
      ++(read < row.num_pages ? counters.sparse_lists : counters.dense_lists);
    }
  }
  counters.pages_read += pages_read;
  counters.k_bytes += pages_read * shape.page_bytes();
  counters.v_bytes += pages_read * shape.page_bytes();
  counters.probe_bytes += pages_probed * shape.page_bytes();
  counters.dense_bytes += 2 * pages_seen * shape.page_bytes();
  counters.summary_bytes += pages_scored * shape.summary_bytes();
}

}  // namespace quest::cpu
