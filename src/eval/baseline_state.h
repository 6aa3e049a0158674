// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "eval/kept_tokens.h"
#include "eval/prompt_weights.h"
#include "quest/eval/baseline.h"

namespace quest::eval {

/// What the evicting baselines know of one sequence. A plain value: a fork's is a copy.
struct EvictionState {
  bool watched = false;
  PromptWeights prompt;              ///< until the first eviction takes them over
  std::optional<BaselineKind> kind;  ///< that evicted; nothing is lost while empty
  std::vector<KeptTokens> heads;     ///< [layers * KV heads]; of those that read all: unused
  std::int64_t length = 0;           ///< tokens of the sequence that `heads` have seen
};

struct BaselineState {
  std::optional<BaselineKind> kind;
  std::uint64_t seed = 0;
  std::vector<std::int32_t> injected_pages;  ///< of kInject: logical, ascending, distinct
  LayerRange injected_layers;
  InjectedReads injected;  ///< of the steps that have ended
  std::map<SequenceId, EvictionState> sequences;

  /// The state that a step works on in which the sequence, now of `tokens` tokens, reads more: an
  /// evicting baseline's, which begins here if it has not yet, or that of a watched prompt; null if
  /// nothing need be noted. `lists` = layers * KV heads. Throws InvalidArgument if the sequence has
  /// lost what the step would read, or if too little is known to evict from it.
  EvictionState* at_work(SequenceId sequence, std::int64_t tokens, bool sparse, std::size_t lists);
};

/// The serving backend, with baselines in its place while `state` names one.
std::unique_ptr<AttentionBackend> make_baseline_backend(KvCache& cache,
                                                        const SelectionPolicy& policy,
                                                        std::shared_ptr<BaselineState> state);

}  // namespace quest::eval
