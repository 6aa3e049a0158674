// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "quest/eval/fidelity.h"
#include "quest/paged_kv.h"

namespace quest::eval {

/// Keys, values and summaries of one KV head of one sequence as floats.
class HeadPages {
 public:
  /// The first `tokens` tokens of the pages that `table` lists.
  void load(const PagedKv& kv, const std::int32_t* table, std::int32_t kv_head,
            std::int64_t tokens);

  std::int64_t tokens() const { return tokens_; }
  std::int32_t num_pages() const {
    return static_cast<std::int32_t>((tokens_ + shape_.page_size - 1) / shape_.page_size);
  }
  std::int32_t head_dim() const { return shape_.head_dim; }
  std::int32_t page_size() const { return shape_.page_size; }
  const float* keys(std::int32_t page) const {
    return keys_.data() + page * shape_.page_elements();
  }
  const float* values(std::int32_t page) const {
    return values_.data() + page * shape_.page_elements();
  }
  const float* bounds(std::int32_t page) const {
    return bounds_.data() + std::int64_t{page} * 2 * shape_.head_dim;
  }

 private:
  CacheShape shape_;
  std::int64_t tokens_ = 0;
  std::vector<float> keys_;    ///< [pages, head_dim, page_size]
  std::vector<float> values_;  ///< [pages, page_size, head_dim]
  std::vector<float> bounds_;  ///< [pages, 2, head_dim]
};

/// One query and what the sparse path made of it.
struct ProbedQuery {
  const float* q = nullptr;            ///< [head_dim]
  const float* out = nullptr;          ///< [head_dim]
  float scale = 1;                     ///< on q·k
  float beta = 1;                      ///< of the policy's score
  std::int32_t top = 1;                ///< R of the page recall
  std::span<const std::int32_t> read;  ///< logical pages, ascending
};

/// Full attention for the query, compared: one token's figures are added to `sums`. The query's own
/// token is the last of `pages`.
void probe_query(const HeadPages& pages, const ProbedQuery& query, HeadFidelity& sums);

}  // namespace quest::eval
