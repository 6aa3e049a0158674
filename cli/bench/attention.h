// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/spread.h"
#include "bench/synthetic_kv.h"
#include "json_output.h"
#include "quest/counters.h"
#include "quest/policy.h"

namespace quest::cli {

class BandwidthProbe;
class Workers;

/// What is measured at one shape. Every engine reads the same keys and values.
struct AttentionPlan {
  AttentionShape shape;
  std::vector<std::int64_t> budgets;  ///< one arm called quest for each
  SelectionPolicy policy;             ///< of quest but for the budget
  bool dense = true;                  ///< our full attention
  bool peer = true;                   ///< llama.cpp's, with flash attention and without
  std::int32_t repeat = 5;            ///< passes of every engine, taken in turns
};

/// One engine's result. Seconds and bytes are those of one layer in one step.
struct AttentionRow {
  std::string engine;  ///< "quest", "dense" or "llama.cpp"
  AttentionShape shape;
  std::optional<std::int64_t> budget;   ///< of quest alone
  std::optional<bool> flash_attention;  ///< of llama.cpp alone
  Spread seconds;
  double bytes = 0;                           ///< K, V and summaries that the engine reads
  std::optional<AttentionCounters> counters;  ///< of one pass over all layers; ours alone
  std::optional<StageSeconds> stages;         ///< medians; ours alone
  std::optional<double> difference;           ///< greatest, from our dense output; llama.cpp's

  std::string name() const;  ///< as people read it: "llama.cpp (flash)"
};

/// True if a budget leaves enough out to be called sparse: pages and summaries together below K and
/// V of the whole context (SPEC S8: 1/S + B/L < 1).
bool leaves_pages_out(std::int64_t budget, const AttentionShape& shape);

/// Lets all engines run in turns; before every timed pass the probe's buffer sweeps the caches.
/// Stops early, with no rows, after Ctrl-C. Throws Error if llama.cpp's output differs from our
/// dense one by more than rounding, or if an arm called sparse read as much as full attention.
std::vector<AttentionRow> measure_attention(const AttentionPlan& plan, BandwidthProbe& probe,
                                            Workers& workers);

/// The row's fields of `quest bench attention --json`.
Json attention_fields(const AttentionRow& row, double read_bandwidth);

/// One ratio for each quest row: over dense and over the faster of llama.cpp's two settings, beside
/// the share of the read bandwidth that the dense arm reached.
Json attention_ratios(const std::vector<AttentionRow>& rows, double read_bandwidth);

}  // namespace quest::cli
