// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "quest/engine.h"

namespace quest::eval {

/// Other ways of choosing what a decode step reads (SPEC S9.4). All of them keep the arm's dense
/// layers, read pages of the same cache and stay within the arm's budget: K pages, B = K ·
/// page_size tokens a KV head.
///
/// Page baselines read the arm's forced pages (tail, window, sinks) and fill the budget with
/// - kStreamingLlm: the most recent pages;
/// - kOracle: the pages with the largest true logits, heads of a group combined by the arm's group
///   mode: what scores without any slack would read;
/// - kFixed: the pages of lowest index: what equal scores would read;
/// - kRandom: pages drawn anew for every position, layer and KV head.
///
/// Token baselines evict, for each layer and KV head. What is gone stays gone; forced pages mean
/// nothing to them. Before a row's own token joins, the worst tokens go until B - 1 are left.
/// - kH2o: the ⌊B/2⌋ most recent tokens stay; of the others the one with the least attention
///   received goes: weights summed over all queries since the prompt's first, meaned over the heads
///   of the group;
/// - kTova: the token goes to which the last query gave the least weight, meaned over the heads.
/// Equal ones: the older goes.
///
/// kGather reads the arm's own pages, copies them side by side and attends to the copy.
///
/// kInject reads the arm's own pages and, in some layers, pages that the caller names, beyond the
/// budget (SPEC S9.3). It tells where certain pages are needed and is no baseline to compare with.
enum class BaselineKind { kStreamingLlm, kH2o, kTova, kOracle, kFixed, kRandom, kGather, kInject };

/// All that read as much as the arm, in this order: not kInject.
std::span<const BaselineKind> all_baselines();
/// "streaming-llm", "h2o", "tova", "oracle", "fixed", "random", "gather", "inject".
std::string_view name_of(BaselineKind kind);
/// One of `all_baselines`.
std::optional<BaselineKind> parse_baseline(std::string_view text);
/// Whether tokens are lost for good.
constexpr bool evicts(BaselineKind kind) {
  return kind == BaselineKind::kH2o || kind == BaselineKind::kTova;
}

/// Layers [first, last], counted from 0.
struct LayerRange {
  std::int32_t first = 0;
  std::int32_t last = 0;

  bool holds(std::int32_t layer) const { return first <= layer && layer <= last; }
};

/// What kInject read beyond the pages of the policy.
struct InjectedReads {
  std::int64_t pages = 0;  ///< summed over (row, layer, KV head)
  std::int64_t bytes = 0;  ///< K and V

  InjectedReads& operator+=(const InjectedReads& other);
};

struct BaselineState;

/// The attention of one engine whose steps may follow a baseline instead of the policy's scores.
/// Counters count what a real implementation would read: of page baselines whole pages, of token
/// baselines the tokens left (k_bytes, v_bytes; `pages_read` is then the number of pages that hold
/// any), of kGather every byte moved, that is read, written and read again, of kInject each page
/// once. No summaries but those of the two that follow the policy. For one engine, whose attention
/// keeps what it needs alive.
class Baselines {
 public:
  Baselines();
  ~Baselines();

  /// For EngineOptions::attention.
  AttentionFactory attention();

  /// Sparse requests of the steps to come follow the baseline; nothing: the policy. `seed` is that
  /// of kRandom.
  void use(std::optional<BaselineKind> kind, std::uint64_t seed = 0);

  /// What kInject adds to the page lists of every KV head in these layers: logical pages in any
  /// order; a row adds those that it sees. Rows that read everything stay as they are.
  void inject(std::span<const std::int32_t> pages, LayerRange layers);
  /// Since the last `inject`.
  InjectedReads injected() const;

  /// From now on until `release`, rows that this sequence reads with full attention are watched:
  /// eviction begins with the weights they gave. `sums` for kH2o, whose sums over all rows cost
  /// about as much as the attention itself, done once more in scalar code. The sequence is empty.
  void watch(SequenceId sequence, bool sums);
  /// `child` is a fork of `parent` at its present length: what the one has lost the other has too.
  void fork(SequenceId parent, SequenceId child);
  void release(SequenceId sequence);
  std::size_t sequences() const;  ///< that hold state

 private:
  std::shared_ptr<BaselineState> state_;
};

/// The choice that an arm makes; `baselines` are those of the engine that it runs on.
struct Baseline {
  BaselineKind kind = BaselineKind::kStreamingLlm;
  std::uint64_t seed = 0;
  std::shared_ptr<Baselines> baselines;
  LayerRange layers{};  ///< of kInject; the pages are the evidence of the question at hand
};

}  // namespace quest::eval
