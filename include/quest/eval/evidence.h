// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "quest/engine.h"

namespace quest::eval {

/// Tokens [begin, end) of a material.
struct TokenRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

/// A fact that an answer needs: every mention of it in the material, each enough by itself.
using Evidence = std::vector<TokenRange>;

/// Logical pages that hold any of the tokens, ascending and distinct.
std::vector<std::int32_t> pages_of(std::span<const TokenRange> ranges, std::int32_t page_size);

/// How far one query reached a fact (SPEC S9.3). A list is what one KV head of one layer reads;
/// lists of all pages reach everything and are left out. A list hits the fact if it holds every
/// page of one of its mentions.
struct EvidenceReach {
  std::int64_t lists = 0;  ///< that left pages out
  std::int64_t hits = 0;
  std::optional<std::int32_t> first_layer;  ///< the first with a hit, counted from 0

  /// Enters the lists of one layer's KV heads, layers in ascending order. `mentions`: the pages of
  /// each mention, ascending as the lists; `num_pages`: what the query could have read.
  void add_layer(std::int32_t layer, std::span<const std::span<const std::int32_t>> layer_lists,
                 std::span<const std::vector<std::int32_t>> mentions, std::int32_t num_pages);
  double share() const;  ///< of the lists, hits; 0 for no list
};

class EvidenceObserver;

/// Sees from the page lists of one engine how far a query reaches a fact. Must outlive the engine.
class EvidenceProbe {
 public:
  EvidenceProbe();
  ~EvidenceProbe();

  /// For EngineOptions::attention: `inner`, or where that is empty the serving backend, watched.
  AttentionFactory attention(AttentionFactory inner = {});

  /// While it lives the probe watches the engine's steps. One at a time.
  class Watch {
   public:
    Watch(EvidenceProbe& probe, const Evidence& evidence);
    ~Watch();
    Watch(const Watch&) = delete;
    Watch& operator=(const Watch&) = delete;

   private:
    EvidenceProbe& probe_;
  };

  /// Of the last row of the last step that was watched.
  const EvidenceReach& reach() const;

 private:
  std::unique_ptr<EvidenceObserver> observer_;
};

}  // namespace quest::eval
