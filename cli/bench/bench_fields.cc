// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "bench/bench_fields.h"

#include <ggml.h>

#include "bench/probe.h"
#include "bench/table.h"

namespace quest::cli {

Json bench_fields(const std::string& model, int threads, const ReadBandwidth& bandwidth) {
  ModelInfo info;
  info.path = model;
  Json json = common_fields(info, threads);
  json["ggml"] = std::string(ggml_version()) + " (" + ggml_commit() + ")";
  json["read_bandwidth"] = bandwidth.best;
  json["read_bandwidth_median"] = bandwidth.median;
  json["probe_passes"] = bandwidth.passes;
  json["probe_bytes"] = bandwidth.buffer_bytes;
  json["last_level_cache_bytes"] = last_level_cache_bytes();
  return json;
}

Json shape_fields(const AttentionShape& shape) {
  return {{"q_heads", shape.q_heads},
          {"kv_heads", shape.kv_heads},
          {"head_dim", shape.head_dim},
          {"kv", std::string(name_of(shape.kv))},
          {"summary", std::string(name_of(shape.summary))}};
}

Json arm_policy_fields(const EngineOptions& engine) {
  Json json = policy_fields(engine);
  json.erase("budget");
  json.erase("dense");
  return json;
}

std::string bandwidth_line(const ReadBandwidth& bandwidth, int threads) {
  return "Read bandwidth of " + std::to_string(threads) +
         (threads == 1 ? " thread: " : " threads: ") + fixed(bandwidth.best * 1e-9, 1) +
         " GB/s (best), " + fixed(bandwidth.median * 1e-9, 1) + " (median) in " +
         std::to_string(bandwidth.passes) + " passes over " +
         std::to_string(bandwidth.buffer_bytes >> 20) + " MiB.";
}

std::string number_or_dash(const Json& value, double factor, int decimals, const char* unit) {
  return value.is_null() ? "-" : fixed(factor * value.get<double>(), decimals) + unit;
}

}  // namespace quest::cli
