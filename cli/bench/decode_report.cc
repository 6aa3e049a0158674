// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "bench/decode_report.h"

#include <algorithm>
#include <string>
#include <utility>

#include "bench/bench_fields.h"
#include "bench/spread.h"

namespace quest::cli {
namespace {

double rate_of(const DecodeBenchRow& row) { return spread(row.decode_rates).median; }

double kv_bytes(const DecodeBenchRow& row) {
  return static_cast<double>(row.counters.attention.bytes_read()) / static_cast<double>(row.steps);
}

// Null for llama.cpp, whose reads nobody counts.
Json bandwidth_share(const DecodeBenchRow& row, const DecodeFigures& figures) {
  if (row.counters.steps == 0) return nullptr;
  const double step_bytes = static_cast<double>(figures.weight_bytes) + kv_bytes(row);
  return step_bytes * rate_of(row) / figures.bandwidth.best;
}

}  // namespace

Json decode_fields(const DecodeBenchRow& row, const DecodeFigures& figures) {
  const Spread rates = spread(row.decode_rates);
  Json json = {{"engine", row.engine},
               {"context", row.context},
               {"budget", row.budget ? Json(*row.budget) : Json(nullptr)},
               {"decode_tokens_per_second", rates.median},
               {"decode_tokens_per_second_min", rates.min},
               {"decode_tokens_per_second_max", rates.max},
               {"prefill_tokens", row.prefill_tokens},
               {"prefill_tokens_per_second", row.prefill_rate}};
  if (row.flash_attention) json["flash_attention"] = *row.flash_attention;
  if (row.counters.steps == 0) return json;
  const AttentionCounters& attention = row.counters.attention;
  json["kv_bytes_read_per_token"] = kv_bytes(row);
  json["kv_bytes_dense_per_token"] =
      static_cast<double>(attention.dense_bytes) / static_cast<double>(row.steps);
  json["bandwidth_share"] = bandwidth_share(row, figures);
  json["bytes_read"] = bytes_read_fields(attention);
  json["seconds"] = seconds_fields(row.counters);
  Json share = Json::object();
  for (const auto& [stage, seconds] : json["seconds"].items()) {
    share[stage] = ratio_or_null(seconds.get<double>(), row.counters.step_seconds);
  }
  json["step_share"] = std::move(share);
  return json;
}

Json decode_ratios(const DecodeFigures& figures) {
  Json ratios = Json::array();
  for (const DecodeBenchRow& quest : figures.rows) {
    if (!quest.budget) continue;
    Json dense = nullptr;
    Json dense_share = nullptr;
    Json peer = nullptr;
    for (const DecodeBenchRow& other : figures.rows) {
      if (other.context != quest.context) continue;
      const double ratio = rate_of(quest) / rate_of(other);
      if (other.engine == "dense") {
        dense = ratio;
        dense_share = bandwidth_share(other, figures);
      } else if (other.engine == "llama.cpp" && (peer.is_null() || ratio < peer.get<double>())) {
        peer = ratio;
      }
    }
    ratios.push_back({{"context", quest.context},
                      {"budget", *quest.budget},
                      {"speedup_over_dense", dense},
                      {"speedup_over_llama_cpp", peer},
                      {"dense_bandwidth_share", dense_share}});
  }
  return ratios;
}

Table decode_table(const DecodeFigures& figures) {
  constexpr double kMiB = 1024.0 * 1024.0;
  Table table;
  table.headers = {"engine",      "context",      "decode t/s",  "min..max",
                   "prefill t/s", "KV MiB/token", "attention %", "bandwidth %"};
  for (const DecodeBenchRow& row : figures.rows) {
    const Spread rates = spread(row.decode_rates);
    std::vector<std::string> cells = {
        row.name(), std::to_string(row.context), fixed(rates.median, 1),
        fixed(rates.min, 1) + ".." + fixed(rates.max, 1), fixed(row.prefill_rate, 1)};
    if (row.counters.steps == 0) {
      cells.insert(cells.end(), 3, "-");
    } else {
      const double attention = row.counters.attention.seconds.total();
      cells.push_back(fixed(kv_bytes(row) / kMiB, 2));
      cells.push_back(fixed(100 * attention / row.counters.step_seconds, 1));
      cells.push_back(number_or_dash(bandwidth_share(row, figures), 100, 1));
    }
    table.rows.push_back(std::move(cells));
  }
  return table;
}

Table decode_ratio_table(const Json& ratios) {
  Table table;
  table.headers = {"ratios of quest", "context", "over dense", "dense at bandwidth %",
                   "over llama.cpp"};
  for (const Json& ratio : ratios) {
    table.rows.push_back({"budget " + ratio.at("budget").dump(), ratio.at("context").dump(),
                          number_or_dash(ratio.at("speedup_over_dense"), 1, 2, "x"),
                          number_or_dash(ratio.at("dense_bandwidth_share"), 100, 1),
                          number_or_dash(ratio.at("speedup_over_llama_cpp"), 1, 2, "x")});
  }
  return table;
}

Chart decode_chart(const DecodeFigures& figures) {
  Chart chart;
  chart.title = "Decoded tokens a second by context";
  chart.x_label = "context, tokens";
  chart.y_label = "tokens a second";
  for (const DecodeBenchRow& row : figures.rows) {
    const std::string name = row.engine == "dense" ? "full attention" : row.name();
    auto found = std::find_if(chart.series.begin(), chart.series.end(),
                              [&](const Series& series) { return series.name == name; });
    if (found == chart.series.end()) {
      found = chart.series.insert(found, {name, {}, false});
    }
    found->points.emplace_back(static_cast<double>(row.context), rate_of(row));
  }
  // Of llama.cpp's two lines the one that is slower at the longest context is dashed.
  Series* faster = nullptr;
  for (Series& series : chart.series) {
    std::sort(series.points.begin(), series.points.end());
    if (!series.name.starts_with("llama.cpp")) continue;
    if (faster == nullptr) {
      faster = &series;
    } else {
      (series.points.back().second < faster->points.back().second ? series : *faster).dashed = true;
    }
  }
  return chart;
}

}  // namespace quest::cli
