// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "quest/engine.h"

namespace quest::cli {

/// What `quest bench profile` measures at one context.
struct ProfilePlan {
  std::int64_t context = 0;  ///< tokens in the cache when the last token is written or read
  std::int64_t tokens = 0;   ///< of a run: decoded one by one, or read in one step
  bool prefill = false;      ///< read instead of decode
  std::int32_t repeat = 0;   ///< runs with the profile, and without, in turns
};

/// One kind of work in the breakdown, per token.
struct ProfileLine {
  std::string kind;
  double seconds = 0;
  double operations = 0;
  double bytes = 0;  ///< read: weights or KV; 0 where they do not matter
  double flops = 0;  ///< of matrix multiplications
};

/// Where the time went at one context, per token: the profiled run of median length, whole, so that
/// the lines add up.
struct Breakdown {
  std::int64_t context = 0;
  std::vector<ProfileLine> lines;
  double seconds = 0;        ///< sampling included
  double plain_seconds = 0;  ///< without the profile, median
  double operations = 0;     ///< of the graph
  double empty_seconds = 0;  ///< of an operation that does nothing
  EngineCounters counters;   ///< of the whole run
};

/// Fills an engine's cache once, then runs from that state. Nothing after Ctrl-C.
std::optional<Breakdown> run_profile(const std::shared_ptr<const Model>& model,
                                     EngineOptions options, const ProfilePlan& plan);

}  // namespace quest::cli
