// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "bench/synthetic_kv.h"
#include "quest/attention.h"

namespace quest::cli {

class Workers;

/// Our side of the comparison: a paged cache full of random keys and values, and one decode step
/// over all its layers under any policy, again and again at the same length.
class PagedAttention {
 public:
  explicit PagedAttention(const AttentionShape& shape);

  struct Pass {
    double seconds = 0;          ///< all layers
    AttentionCounters counters;  ///< of this pass alone
  };
  /// Runs all layers once. Throws InvalidArgument for a policy that does not fit.
  Pass pass(const SelectionPolicy& policy, Workers& workers);
  /// The layer's output of the last pass: [batch, q_heads, head_dim].
  const std::vector<float>& output(std::int32_t layer) const;

  const AttentionShape& shape() const { return shape_; }

 private:
  struct Layer {
    std::vector<float> q;  ///< [batch, q_heads, head_dim]
    std::vector<float> k;  ///< [batch, kv_heads, head_dim], of the newest token
    std::vector<float> v;
    std::vector<float> out;
  };
  void fill(std::int32_t layer, std::int32_t sequence);
  LayerInput input(std::int32_t layer);

  AttentionShape shape_;
  KvCache cache_;
  std::vector<SequenceId> sequences_;
  std::vector<Layer> layers_;
  Batch dense_;
  Batch sparse_;
  std::unique_ptr<AttentionBackend> backend_;
};

}  // namespace quest::cli
