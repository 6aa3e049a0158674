// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/synthetic_kv.h"
#include "common_options.h"

namespace quest::cli {

/// The flags that `quest bench attention` and `quest bench sweep` share.
struct AttentionFlags {
  CommonOptions common;
  std::int32_t q_heads = 0;  ///< 0: the model's
  std::int32_t kv_heads = 0;
  std::int32_t head_dim = 0;
  std::string contexts;
  std::string budgets;
  std::int32_t repeat = 5;
  std::int64_t probe_mib = 0;  ///< 0: what suits the caches
  bool table = false;
  std::string html;
};

void add_attention_flags(CLI::App& command, AttentionFlags& flags);

/// The flags after all checks.
struct AttentionSetup {
  EngineOptions engine;  ///< policy, KV type, page size and threads, resolved
  AttentionShape shape;  ///< context, batch and layers still open
  std::string model;     ///< whose shape it is
  std::vector<std::int64_t> contexts;
  std::vector<std::int64_t> budgets;
  std::int64_t probe_bytes = 0;
};

/// Throws InvalidArgument naming the flag; reads the model's shape unless the flags give all of it.
AttentionSetup checked_setup(const AttentionFlags& flags);

}  // namespace quest::cli
