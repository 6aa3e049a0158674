// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <limits>
#include <stdexcept>
#include <string>

#include "quest/batch.h"
#include "quest/error.h"
#include "quest/kv_cache.h"

namespace quest {

namespace {

/// Throws InvalidArgument if the indptr cannot grow by `count` in 32 bits.
std::int32_t next_offset(const std::vector<std::int32_t>& indptr, std::int64_t count,
                         const char* field) {
  const std::int64_t next = indptr.back() + count;
  if (next > std::numeric_limits<std::int32_t>::max()) {
    throw InvalidArgument("batch: " + std::string(field) + " would reach " + std::to_string(next) +
                          ", beyond 32 bits; run fewer requests in one step");
  }
  return static_cast<std::int32_t>(next);
}

}  // namespace

void add_request(Batch& batch, const KvCache& cache, SequenceId sequence, std::int32_t rows,
                 bool sparse) {
  const std::int64_t length = cache.length(sequence);
  if (rows < 0 || rows > length) {
    throw InvalidArgument("batch: " + std::to_string(rows) + " rows for sequence " +
                          std::to_string(sequence) + ", which has " + std::to_string(length) +
                          " tokens");
  }
  const std::span<const std::int32_t> pages = cache.pages(sequence);
  const std::int32_t page_size = cache.shape().page_size;
  const auto num_pages = static_cast<std::int64_t>(pages.size());
  const std::int64_t tail = num_pages == 0 ? 0 : length - (num_pages - 1) * page_size;
  // One page too many would make the tail empty and let stale keys in; one too few would hide keys.
  if (tail > page_size || tail < std::min<std::int64_t>(num_pages, 1) ||
      (num_pages == 0 && length != 0)) {
    throw std::logic_error("batch: page table of " + std::to_string(num_pages) +
                           " pages does not fit a length of " + std::to_string(length));
  }
  const std::int32_t next_row = next_offset(batch.q_indptr, rows, "q_indptr");
  const std::int32_t next_page = next_offset(batch.page_indptr, num_pages, "page_indptr");

  batch.q_indptr.push_back(next_row);
  batch.page_indptr.push_back(next_page);
  batch.page_indices.insert(batch.page_indices.end(), pages.begin(), pages.end());
  batch.last_page_len.push_back(static_cast<std::int32_t>(tail));
  batch.sequences.push_back(sequence);
  batch.sparse.push_back(sparse ? 1 : 0);
}

}  // namespace quest
