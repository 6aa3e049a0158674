// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <list>
#include <memory>

#include "model/graph.h"

namespace quest {

/// Forward graphs by batch shape, built on first use and kept: decode runs the same graph at every
/// step. The least recently used is dropped when too many shapes have been seen.
class GraphCache {
 public:
  GraphCache(const ModelWeights& weights, AttentionCall attention)
      : weights_(weights), attention_(std::move(attention)) {}

  ForwardGraph& get(std::int64_t rows, std::int64_t outputs) {
    for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
      if (entry->rows == rows && entry->outputs == outputs) {
        entries_.splice(entries_.begin(), entries_, entry);
        return *entries_.front().graph;
      }
    }
    auto graph = std::make_unique<ForwardGraph>(weights_, rows, outputs, attention_);
    if (entries_.size() == kCapacity) entries_.pop_back();
    entries_.push_front({rows, outputs, std::move(graph)});
    return *entries_.front().graph;
  }

 private:
  static constexpr std::size_t kCapacity = 4;
  struct Entry {
    std::int64_t rows;
    std::int64_t outputs;
    std::unique_ptr<ForwardGraph> graph;
  };
  const ModelWeights& weights_;
  const AttentionCall attention_;
  std::list<Entry> entries_;
};

}  // namespace quest
