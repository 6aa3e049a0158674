// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "json_output.h"

#include <algorithm>
#include <fstream>
#include <thread>

#include "build_info.h"

#ifdef __APPLE__
#include <sys/sysctl.h>
#endif

namespace quest::cli {

std::string cpu_name() {
#ifdef __APPLE__
  char name[256] = {};
  std::size_t size = sizeof name - 1;
  if (sysctlbyname("machdep.cpu.brand_string", name, &size, nullptr, 0) == 0) return name;
#else
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("model name")) continue;
    const std::size_t value = line.find_first_not_of(" \t", line.find(':') + 1);
    if (value != std::string::npos) return line.substr(value);
  }
#endif
  return "unknown";
}

int resolved_threads(int threads) {
  if (threads > 0) return threads;
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

Json common_fields(const ModelInfo& info, int threads) {
  return {{"version", QUEST_VERSION}, {"commit", QUEST_COMMIT}, {"compiler", QUEST_COMPILER},
          {"cpu", cpu_name()},        {"threads", threads},     {"model", info.path}};
}

Json engine_fields(const Engine& engine) {
  Json json = common_fields(engine.model().info(), engine.options().threads);
  json["device"] = engine.attention().device();
  return json;
}

Json policy_fields(const EngineOptions& options) {
  const SelectionPolicy& policy = options.policy;
  return {{"dense", policy.dense},
          {"budget", policy.budget},
          {"calibrated", !policy.budget_table.empty()},
          {"page_size", options.page_size},
          {"sinks", policy.sinks},
          {"window", policy.window},
          {"dense_layers", policy.dense_layers},
          {"gqa", std::string(name_of(policy.group_mode))},
          {"beta", policy.beta},
          {"value_threshold", policy.value_threshold},
          {"crossover", policy.crossover},
          {"certify", to_string(policy.certificate)},
          {"kv", std::string(name_of(options.kv_type))},
          {"summary", std::string(name_of(options.summary_type))}};
}

Json bytes_read_fields(const AttentionCounters& counters) {
  Json bytes = {
      {"k", counters.k_bytes}, {"v", counters.v_bytes}, {"summaries", counters.summary_bytes}};
  if (counters.certificates.lists > 0) bytes["probes"] = counters.probe_bytes;
  return bytes;
}

Json seconds_fields(const EngineCounters& counters) {
  const StageSeconds& stages = counters.attention.seconds;
  return {
      {"append", stages.append}, {"summarise", stages.summarise},
      {"score", stages.score},   {"select", stages.select},
      {"attend", stages.attend}, {"other", std::max(0.0, counters.step_seconds - stages.total())}};
}

Json ratio_or_null(double amount, double count) {
  if (!(count > 0)) return nullptr;
  return amount / count;
}

std::string dump(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace quest::cli
