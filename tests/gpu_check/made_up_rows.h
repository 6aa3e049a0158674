// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "json_output.h"

namespace quest::testing {

/// A row of quest-gpu-check's tables.
inline cli::Json our_row(const std::string& engine, std::int64_t context, std::int64_t budget,
                         double seconds, double dense_seconds, std::int64_t batch = 1) {
  const double bytes = 4e6;
  return {{"engine", engine},
          {"seconds", seconds},
          {"bytes", bytes},
          {"bytes_per_second", bytes / seconds},
          {"bandwidth_share", 0.25},
          {"stage_bandwidth_share", {{"score", 0.5}, {"attend", 0.75}}},
          {"stage_microseconds",
           {{"append", 1.0}, {"summarise", 2.0}, {"score", 3.5}, {"select", 4.5}, {"attend", 5.5}}},
          {"context", context},
          {"budget", budget},
          {"batch", batch},
          {"q_heads", 32},
          {"kv_heads", 8},
          {"head_dim", 128},
          {"kv", "f16"},
          {"speedup", dense_seconds / seconds}};
}

/// A row of scripts/gpu_peers.py.
inline cli::Json peer_row(const std::string& engine, std::int64_t context, double seconds) {
  return {{"engine", engine}, {"context", context}, {"batch", 1},  {"q_heads", 32},
          {"kv_heads", 8},    {"head_dim", 128},    {"kv", "f16"}, {"seconds", seconds}};
}

/// Two contexts, two budgets: 100 and 400 µs in full, 50 and 20 µs at a budget of 512.
inline cli::Json our_rows() {
  return cli::Json::array(
      {our_row("dense", 2048, 2048, 100e-6, 100e-6), our_row("quest", 2048, 512, 50e-6, 100e-6),
       our_row("dense", 32768, 32768, 400e-6, 400e-6), our_row("quest", 32768, 2048, 40e-6, 400e-6),
       our_row("quest", 32768, 512, 20e-6, 400e-6)});
}

}  // namespace quest::testing
