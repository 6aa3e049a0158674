// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "quest/engine.h"

namespace quest::cli {

class LlamaPeer;

/// What `quest bench decode` measures at one context.
struct DecodeBenchPlan {
  std::int64_t context = 0;  ///< tokens in the cache when the last measured token is written
  std::vector<std::int64_t> budgets;
  std::int64_t tokens = 32;  ///< written in each run, ≥ 2; the first step is not timed
  std::int32_t repeat = 3;   ///< runs of every engine, taken in turns
};

/// One engine's result at one context. Rates are medians over the runs.
struct DecodeBenchRow {
  std::string engine;  ///< "quest", "dense" or "llama.cpp"
  std::int64_t context = 0;
  std::optional<std::int64_t> budget;   ///< of quest alone
  std::optional<bool> flash_attention;  ///< of llama.cpp alone
  std::int64_t prefill_tokens = 0;
  double prefill_rate = 0;
  std::vector<double> decode_rates;  ///< one a run, in order
  std::int64_t steps = 0;            ///< behind `counters`
  EngineCounters counters;           ///< of all runs; nothing for llama.cpp

  std::string name() const;  ///< as people read it: "llama.cpp (flash)"
};

/// Fills every engine's cache once with the same text, then lets them decode in turns from that
/// state. Every peer is an engine of its own. Stops early, with no rows, after Ctrl-C. Throws Error
/// if an engine called sparse read as much as full attention although the context exceeds its
/// budget.
std::vector<DecodeBenchRow> run_decode_bench(const std::shared_ptr<const Model>& model,
                                             const EngineOptions& options,
                                             std::span<const std::unique_ptr<LlamaPeer>> peers,
                                             const DecodeBenchPlan& plan);

}  // namespace quest::cli
