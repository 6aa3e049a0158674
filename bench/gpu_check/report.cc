// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "gpu_check/report.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

namespace quest::gpu_check {

namespace {

using cli::Chart;
using cli::fixed;
using cli::Json;
using cli::Report;
using cli::Series;
using cli::Table;

constexpr const char* kNote =
    "Times are those of one layer of one decode step, replayed as a CUDA graph; the stages were "
    "timed apart, launched by hand. bandwidth %: bytes that the counters say were read, in that "
    "time, as a share of the device's copy bandwidth.";

std::string micro(double seconds) { return fixed(seconds * 1e6, 1); }

std::string count(const Json& row, const char* name) {
  return std::to_string(row.at(name).get<std::int64_t>());
}

std::string heads_of(const Json& row) {
  return count(row, "q_heads") + "/" + count(row, "kv_heads");
}

bool is_dense(const Json& row) { return row.at("engine") == "dense"; }

std::string stage_share(const Json& row, const char* stage) {
  return fixed(100 * row.at("stage_bandwidth_share").at(stage).get<double>(), 1);
}

/// Charts are drawn for one head count and batch each.
using Group = std::tuple<std::int64_t, std::int64_t, std::int64_t>;

Group group_of(const Json& row) {
  return {row.at("q_heads").get<std::int64_t>(), row.at("kv_heads").get<std::int64_t>(),
          row.at("batch").get<std::int64_t>()};
}

Series& series_named(Chart& chart, const std::string& name, bool dashed = false) {
  const auto found = std::find_if(chart.series.begin(), chart.series.end(),
                                  [&](const Series& series) { return series.name == name; });
  if (found != chart.series.end()) return *found;
  chart.series.push_back({name, {}, dashed});
  return chart.series.back();
}

void add_point(Series& series, const Json& row) {
  series.points.emplace_back(row.at("context").get<double>(),
                             row.at("seconds").get<double>() * 1e6);
}

Chart& chart_of(std::map<Group, Chart>& charts, const Json& row) {
  Chart& chart = charts[group_of(row)];
  chart.title = "Attention of one decode step, one layer: " + heads_of(row) + " heads, batch " +
                count(row, "batch");
  chart.x_label = "context, tokens";
  chart.y_label = "microseconds a layer";
  chart.log_y = true;
  return chart;
}

std::vector<Chart> time_charts(const Json& rows, const Json& peers) {
  std::map<Group, Chart> charts;
  for (const Json& row : rows) {
    const std::string name = is_dense(row) ? "dense" : "quest " + count(row, "budget");
    add_point(series_named(chart_of(charts, row), name), row);
  }
  for (const Json& row : peers) {
    add_point(series_named(chart_of(charts, row), row.at("engine").get<std::string>(), true), row);
  }
  std::vector<Chart> drawn;
  for (auto& [group, chart] : charts) {
    for (Series& series : chart.series) std::sort(series.points.begin(), series.points.end());
    drawn.push_back(std::move(chart));
  }
  return drawn;
}

Table times_table(const Json& rows) {
  Table table;
  table.title = "Times";
  table.headers = {"engine",   "heads",      "batch",       "context",  "budget",
                   "us/layer", "over dense", "score",       "select",   "attend",
                   "MB/layer", "GB/s",       "bandwidth %", "in score", "in attend"};
  for (const Json& row : rows) {
    const Json& stages = row.at("stage_microseconds");
    const auto stage = [&](const char* name) {
      return is_dense(row) && std::string(name) != "attend" ? std::string("-")
                                                            : fixed(stages.at(name), 1);
    };
    table.rows.push_back(
        {row.at("engine"), heads_of(row), count(row, "batch"), count(row, "context"),
         is_dense(row) ? "-" : count(row, "budget"), micro(row.at("seconds")),
         fixed(row.at("speedup"), 2) + "x", stage("score"), stage("select"), stage("attend"),
         fixed(row.at("bytes").get<double>() * 1e-6, 3),
         fixed(row.at("bytes_per_second").get<double>() * 1e-9, 1),
         fixed(100 * row.at("bandwidth_share").get<double>(), 1),
         is_dense(row) ? "-" : stage_share(row, "score"), stage_share(row, "attend")});
  }
  return table;
}

/// A line a peer and budget of ours.
Table peers_table(const Json& peers) {
  Table table;
  table.title = "Beside other programs' full attention";
  table.headers = {"engine",       "heads", "batch",      "context",      "us/layer",
                   "our dense us", "ratio", "our budget", "our quest us", "ratio"};
  for (const Json& peer : peers) {
    const bool has_dense = !peer.at("dense_seconds").is_null();
    const std::vector<std::string> first{peer.at("engine"),
                                         heads_of(peer),
                                         count(peer, "batch"),
                                         count(peer, "context"),
                                         micro(peer.at("seconds")),
                                         has_dense ? micro(peer.at("dense_seconds")) : "-",
                                         has_dense ? fixed(peer.at("over_dense"), 2) + "x" : "-"};
    const auto add = [&](const std::vector<std::string>& last) {
      table.rows.push_back(first);
      table.rows.back().insert(table.rows.back().end(), last.begin(), last.end());
    };
    for (const Json& quest : peer.at("quest")) {
      add({count(quest, "budget"), micro(quest.at("seconds")),
           fixed(quest.at("speedup"), 2) + "x"});
    }
    if (peer.at("quest").empty()) add({"-", "-", "-"});
  }
  return table;
}

Table failures_table(const Json& failures) {
  Table table;
  table.title = "Cases that failed";
  table.headers = {"case", "error"};
  for (const Json& row : failures) {
    table.rows.push_back({row.at("case"), row.at("error").dump()});
  }
  return table;
}

Table skipped_table(const Json& skipped) {
  Table table;
  table.title = "Not measured";
  table.headers = {"heads", "batch", "context", "for want of"};
  for (const Json& row : skipped) {
    table.rows.push_back(
        {heads_of(row), count(row, "batch"), count(row, "context"), row.at("reason")});
  }
  return table;
}

Table skipped_peers_table(const Json& skipped) {
  Table table;
  table.title = "Other programs, not measured";
  table.headers = {"engine", "heads", "batch", "context", "why"};
  for (const Json& row : skipped) {
    const bool shaped = row.contains("q_heads");
    table.rows.push_back({row.at("engine"), shaped ? heads_of(row) : "all",
                          shaped ? count(row, "batch") : "all",
                          shaped ? count(row, "context") : "all", row.at("reason")});
  }
  return table;
}

Table targets_table(const Json& targets) {
  Table table;
  table.title = "Targets, at 32 k tokens";
  table.headers = {"target", "wanted", "got", "met"};
  for (const Json& row : targets) {
    const bool measured = !row.at("got").is_null();
    table.rows.push_back(
        {row.at("target"),
         (row.at("at_least").get<bool>() ? ">= " : "<= ") + fixed(row.at("wanted"), 2),
         measured ? fixed(row.at("got"), 2) : "not measured",
         !measured                   ? "-"
         : row.at("met").get<bool>() ? "yes"
                                     : "no"});
  }
  return table;
}

Table sanitizer_table(const Json& runs) {
  Table table;
  table.title = "Small shapes under compute-sanitizer";
  table.headers = {"tool", "result", "the end of what it said"};
  for (const Json& row : runs) {
    table.rows.push_back({row.at("tool"), row.at("result"), row.value("output", "-")});
  }
  return table;
}

std::string sanitizer_verdict(const Json& sanitizer) {
  if (sanitizer.contains("skipped")) {
    return "compute-sanitizer did not run: " + sanitizer["skipped"].get<std::string>() + ".";
  }
  return "compute-sanitizer: " + count(sanitizer, "failed") + " of " +
         std::to_string(sanitizer.at("runs").size()) + " runs failed.";
}

std::string verdict(const Json& result) {
  const Json& correctness = result.at("correctness");
  const Json& graph = result.at("graph");
  const Json& repeats = result.at("repeats");
  return "Correctness: " + count(correctness, "failed") + " of " + count(correctness, "cases") +
         " cases failed, greatest error " + correctness.at("max_error").dump() + " (allowed " +
         correctness.at("tolerance").dump() +
         "). Replays of a captured step: " + count(graph, "failed") + " of " +
         count(graph, "replays") + " differ. Repeats of one step: " + count(repeats, "failed") +
         " of " + count(repeats, "compared") + " compared differ, of " + count(repeats, "repeats") +
         ".";
}

}  // namespace

Report make_report(const Json& result) {
  const Json& tables = result.at("tables");
  const Json peers = result.contains("peers") ? result["peers"].at("rows") : Json::array();
  Report report;
  report.title = "Quest on " + result.at("gpu").get<std::string>();
  for (const auto& [name, value] : result.items()) {
    if (value.is_primitive()) report.facts[name] = value;
  }
  report.facts["copy bandwidth, GB/s"] = fixed(tables.at("copy_bandwidth").get<double>() * 1e-9, 1);
  if (result.contains("peers")) {
    for (const auto& [name, version] : result["peers"].at("versions").items()) {
      report.facts[name] = version;
    }
  }
  report.notes = {verdict(result), sanitizer_verdict(result.at("sanitizer")), kNote};
  report.charts = time_charts(tables.at("rows"), peers);
  report.tables.push_back(targets_table(result.at("targets")));
  report.tables.push_back(times_table(tables.at("rows")));
  if (!peers.empty()) report.tables.push_back(peers_table(peers));
  if (result.contains("peers") && !result["peers"].at("skipped").empty()) {
    report.tables.push_back(skipped_peers_table(result["peers"]["skipped"]));
  }
  if (!result["correctness"].at("rows").empty()) {
    report.tables.push_back(failures_table(result["correctness"]["rows"]));
  }
  if (!result["sanitizer"].at("runs").empty()) {
    report.tables.push_back(sanitizer_table(result["sanitizer"]["runs"]));
  }
  if (!tables.at("skipped").empty()) report.tables.push_back(skipped_table(tables["skipped"]));
  return report;
}

}  // namespace quest::gpu_check
