// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "eval/head_probe.h"
#include "quest/attention.h"

namespace quest::eval {

/// Attention weights that the queries of a prompt gave to its tokens, meaned over the query heads
/// of each KV head.
struct PromptWeights {
  bool with_sums = false;
  std::int64_t tokens = 0;
  std::vector<std::vector<double>> sums;  ///< [layers * KV heads][tokens] over all queries
  std::vector<std::vector<double>> last;  ///< the same, of the last query alone
};

/// Consecutive rows of one sequence whose keys are in the cache.
struct RowRange {
  std::int32_t first_row = 0;
  std::int32_t num_rows = 0;
  std::int64_t first_position = 0;
  const std::int32_t* table = nullptr;  ///< physical page of each logical page
};

/// Recomputes full attention's weights beside the serving kernels, which keep none.
class PromptWatcher {
 public:
  explicit PromptWatcher(int threads) : spaces_(static_cast<std::size_t>(threads)) {}

  /// Adds the rows' weights in one layer; `weights` holds those of the tokens before them. Called
  /// by every member of the team, between two barriers of theirs.
  void observe(const PagedKv& kv, const RowRange& rows, const LayerInput& input, Team& team,
               int thread, PromptWeights& weights);

 private:
  struct Space {
    HeadPages pages;
    std::vector<float> logits;
    std::vector<std::vector<double>> sums;  ///< [KV heads][tokens], of this thread's rows
  };
  std::vector<Space> spaces_;
};

}  // namespace quest::eval
