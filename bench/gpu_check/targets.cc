// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "gpu_check/targets.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace quest::gpu_check {

namespace {

using cli::Json;

constexpr std::int64_t kContext = 32768;
constexpr std::int64_t kBudget = 2048;

/// Full attention of 32 heads, or Quest over it.
bool is_row(const Json& row, const char* engine, std::int64_t least_batch,
            std::int64_t most_batch) {
  const auto batch = row.at("batch").get<std::int64_t>();
  const bool quest = std::string(engine) == "quest";
  return row.at("engine") == engine && row.at("context") == kContext && row.at("q_heads") == 32 &&
         row.at("kv_heads") == 32 && batch >= least_batch && batch <= most_batch &&
         (!quest || row.at("budget") == kBudget);
}

double select_share(const Json& row) {
  double all = 0;
  for (const auto& [name, time] : row.at("stage_microseconds").items()) all += time.get<double>();
  const Json& stages = row.at("stage_microseconds");
  return (stages.at("score").get<double>() + stages.at("select").get<double>()) / all;
}

/// The worst of the rows that are meant.
std::optional<double> worst(const Json& rows, bool at_least,
                            const std::function<bool(const Json&)>& meant,
                            const std::function<double(const Json&)>& value) {
  std::optional<double> found;
  for (const Json& row : rows) {
    if (!meant(row)) continue;
    const double x = value(row);
    if (!found) found = x;
    found = at_least ? std::min(*found, x) : std::max(*found, x);
  }
  return found;
}

Json judged(const char* target, double wanted, bool at_least, const std::optional<double>& got) {
  Json row{{"target", target}, {"wanted", wanted}, {"at_least", at_least}};
  row["got"] = got ? Json(*got) : Json();
  row["met"] = got ? Json(at_least ? *got >= wanted : *got <= wanted) : Json();
  return row;
}

}  // namespace

Json judge_targets(const Json& rows) {
  const auto number = [](const char* name) {
    return [name](const Json& row) { return row.at(name).get<double>(); };
  };
  const auto quest = [](const Json& row) { return is_row(row, "quest", 1, 1); };
  const auto dense = [](const Json& row) { return is_row(row, "dense", 8, 1 << 20); };
  return Json::array({judged("Quest over our full attention, budget 2048, 32/32 heads, batch 1",
                             7.03, true, worst(rows, true, quest, number("speedup"))),
                      judged("score and select in the stages of Quest, the same", 0.40, false,
                             worst(rows, false, quest, select_share)),
                      judged("full attention in the copy bandwidth, 32/32 heads, batch 8 and more",
                             0.85, true, worst(rows, true, dense, number("bandwidth_share")))});
}

}  // namespace quest::gpu_check
