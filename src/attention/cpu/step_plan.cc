// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "attention/cpu/step_plan.h"

#include <algorithm>
#include <string>

#include "attention/check_step.h"
#include "quest/error.h"

namespace quest::cpu {

namespace {

/// Numbers in the queries of a tile (virtual rows, that is positions times heads, times head_dim):
/// enough rows that a widened run of keys is used many times, few enough that queries and outputs
/// stay in the second-level cache.
constexpr std::int32_t kTileNumbers = 384 * 64;
/// Smallest tile worth widening keys for.
constexpr std::int32_t kSmallestTileRows = 24;
/// Tiles a thread, so that the ends of a causal triangle even out.
constexpr std::int64_t kTilesPerThread = 3;

}  // namespace

void StepPlan::build(const Batch& batch, const KvCache& cache, std::int32_t num_q_heads,
                     int num_threads) {
  const CacheShape& shape = cache.shape();
  check_step(batch, cache, num_q_heads);
  if (num_threads < 1) {
    throw InvalidArgument("threads must be at least 1, not " + std::to_string(num_threads));
  }
  group = num_q_heads / shape.num_kv_heads;
  threads = num_threads;
  requests.clear();
  rows.clear();
  max_pages = 0;
  sparse_rows = 0;
  for (std::int32_t r = 0; r < batch.num_requests(); ++r) {
    const std::int32_t count = batch.num_rows(r);
    if (count == 0) continue;
    RequestPlan request;
    request.first_row = batch.q_indptr[r];
    request.num_rows = count;
    request.first_position = batch.kv_len(r, shape.page_size) - count;
    request.table = batch.pages(r);
    request.sparse = batch.sparse[r] != 0;
    for (std::int32_t i = 0; i < count; ++i) {
      RowPlan row;
      row.position = request.first_position + i;
      row.num_pages = static_cast<std::int32_t>(row.position / shape.page_size + 1);
      row.tail_tokens = static_cast<std::int32_t>(row.position % shape.page_size + 1);
      row.request = static_cast<std::int32_t>(requests.size());
      rows.push_back(row);
    }
    request.last_pages = rows.back().num_pages;
    max_pages = std::max(max_pages, request.last_pages);
    if (request.sparse) sparse_rows += count;
    requests.push_back(request);
  }

  // Tiles shrink until every thread has some. When even then most threads would idle, as with a
  // few rows on a large machine, one list a row splits over pages and keeps all of them busy.
  const auto tiles = [&](std::int32_t positions) {
    std::int64_t count = 0;
    for (const RequestPlan& request : requests) {
      if (request.num_rows > 1) count += (request.num_rows + positions - 1) / positions;
    }
    return count * shape.num_kv_heads;
  };
  tile_positions = std::max(1, kTileNumbers / shape.head_dim / group);
  while (tiles(tile_positions) < kTilesPerThread * threads &&
         tile_positions / 2 * group >= kSmallestTileRows) {
    tile_positions /= 2;
  }
  std::int64_t most_rows = 1;
  for (const RequestPlan& request : requests) {
    most_rows = std::max<std::int64_t>(most_rows, request.num_rows);
  }
  tiles_pay = tiles(tile_positions) * most_rows >= threads;
}

}  // namespace quest::cpu
