// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "quest/batch.h"
#include "quest/kv_cache.h"
#include "quest/policy.h"

namespace quest::cpu {

/// One query row: what it sees is fixed by its position alone.
struct RowPlan {
  std::int64_t position = 0;
  std::int32_t num_pages = 0;    ///< pages that it sees, its own included
  std::int32_t tail_tokens = 0;  ///< tokens that it sees of its own page, the last of these
  std::int32_t request = 0;
};

/// One request with at least one row.
struct RequestPlan {
  std::int32_t first_row = 0;
  std::int32_t num_rows = 0;
  std::int64_t first_position = 0;
  const std::int32_t* table = nullptr;  ///< physical page of each logical page
  bool sparse = false;
  std::int32_t last_pages = 0;  ///< pages that the last row sees
};

/// How the rows of one (request, KV head) are computed in one layer.
enum class RowsKind {
  kTiles,  ///< many rows that read everything: the prefill kernel
  kLists,  ///< each row has its own page list: all pages, or selected ones
};

/// What one step does, the same in all layers but for the budgets. Built once a step; everything
/// in it is read-only while layers run.
struct StepPlan {
  std::vector<RequestPlan> requests;
  std::vector<RowPlan> rows;
  std::int32_t group = 1;
  int threads = 1;
  std::int32_t max_pages = 0;       ///< of any row
  std::int32_t sparse_rows = 0;     ///< rows of sparse requests
  std::int32_t tile_positions = 1;  ///< rows of one prefill tile
  bool tiles_pay = false;           ///< see `kind`

  /// Checks the batch against the cache and fills the plan. Throws InvalidArgument.
  void build(const Batch& batch, const KvCache& cache, std::int32_t num_q_heads, int num_threads);

  /// `budget` is that of the layer and head.
  RowsKind kind(const RequestPlan& request, const PageBudget& budget) const {
    const bool reads_all = !request.sparse || !budget.selects(request.last_pages);
    return reads_all && request.num_rows > 1 && tiles_pay ? RowsKind::kTiles : RowsKind::kLists;
  }
  /// Whether the row's pages are scored and selected; otherwise it reads all of them.
  static bool scored(const RequestPlan& request, const RowPlan& row, const PageBudget& budget) {
    return request.sparse && budget.selects(row.num_pages);
  }
};

}  // namespace quest::cpu
