// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "quest/paged_kv.h"

namespace quest {

class KvCache;

/// A ragged batch over the paged cache: the one description that every backend reads (SPEC S6).
/// Request r owns query rows [q_indptr[r], q_indptr[r+1]) and the logical pages
/// page_indices[page_indptr[r] … page_indptr[r+1]). Its KV length includes the rows' own tokens,
/// which are the last ones: row i of n sits at position kv_len - n + i and sees keys up to itself.
/// A request without rows, or without pages, is normal.
struct Batch {
  std::vector<std::int32_t> q_indptr{0};     ///< [num_requests + 1]
  std::vector<std::int32_t> page_indptr{0};  ///< [num_requests + 1]
  std::vector<std::int32_t> page_indices;    ///< physical pages, flat
  std::vector<std::int32_t> last_page_len;   ///< [num_requests], 1..page_size; 0: no pages
  std::vector<std::int64_t> sequences;       ///< [num_requests], SequenceId to append to
  std::vector<std::uint8_t> sparse;          ///< [num_requests], 1: each row selects its pages

  std::int32_t num_requests() const { return static_cast<std::int32_t>(last_page_len.size()); }
  std::int32_t num_rows() const { return q_indptr.back(); }
  std::int32_t num_rows(std::int32_t r) const { return q_indptr[r + 1] - q_indptr[r]; }
  std::int32_t num_pages(std::int32_t r) const { return page_indptr[r + 1] - page_indptr[r]; }
  const std::int32_t* pages(std::int32_t r) const { return page_indices.data() + page_indptr[r]; }
  std::int64_t kv_len(std::int32_t r, std::int32_t page_size) const {
    const std::int64_t pages = num_pages(r);
    return pages == 0 ? 0 : (pages - 1) * page_size + last_page_len[r];
  }
  void clear();
};

/// Throws InvalidArgument naming the field if the description is not consistent with itself and
/// with a cache of this shape: monotone indptr, page indices inside the pool, last_page_len within
/// 1..page_size exactly when there are pages, no more rows than tokens.
void validate(const Batch& batch, const CacheShape& shape);

/// Appends a request for `sequence` with its page table as it is now, so that
/// (pages - 1) * page_size + last_page_len is the sequence's length. Its last `rows` tokens,
/// already reserved, are the query rows. Throws InvalidArgument for an unknown sequence or rows
/// outside 0..length; the batch is then unchanged.
void add_request(Batch& batch, const KvCache& cache, std::int64_t sequence, std::int32_t rows,
                 bool sparse);

}  // namespace quest
