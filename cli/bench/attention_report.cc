// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "bench/attention_report.h"

#include <algorithm>
#include <string>

#include "bench/bench_fields.h"

namespace quest::cli {
namespace {

std::string us(double seconds) { return fixed(seconds * 1e6, 1); }

Series& series_named(Chart& chart, const std::string& name) {
  const auto found = std::find_if(chart.series.begin(), chart.series.end(),
                                  [&](const Series& series) { return series.name == name; });
  if (found != chart.series.end()) return *found;
  chart.series.push_back({name, {}, name.find("(plain)") != std::string::npos});
  return chart.series.back();
}

void add_point(Chart& chart, const std::string& name, const AttentionRow& row, double seconds) {
  series_named(chart, name)
      .points.emplace_back(static_cast<double>(row.shape.context), seconds * 1e6);
}

Chart empty_time_chart(const std::string& title) {
  Chart chart;
  chart.title = title;
  chart.x_label = "context, tokens";
  chart.y_label = "microseconds a layer";
  chart.log_y = true;
  return chart;
}

void sort_points(Chart& chart) {
  for (Series& series : chart.series) std::sort(series.points.begin(), series.points.end());
}

}  // namespace

Table attention_table(const std::vector<AttentionRow>& rows, double read_bandwidth) {
  Table table;
  table.headers = {"engine", "context", "page",     "batch", "us/layer",    "min..max", "score",
                   "select", "attend",  "MB/layer", "GB/s",  "bandwidth %", "best %"};
  for (const AttentionRow& row : rows) {
    const double rate = row.bytes / row.seconds.median;
    const auto stage = [&](double StageSeconds::*member) {
      return row.stages ? us(*row.stages.*member) : std::string("-");
    };
    table.rows.push_back(
        {row.name(), std::to_string(row.shape.context),
         row.stages ? std::to_string(row.shape.page_size) : "-", std::to_string(row.shape.batch),
         us(row.seconds.median), us(row.seconds.min) + ".." + us(row.seconds.max),
         stage(&StageSeconds::score), stage(&StageSeconds::select), stage(&StageSeconds::attend),
         fixed(row.bytes * 1e-6, 3), fixed(rate * 1e-9, 1), fixed(100 * rate / read_bandwidth, 1),
         fixed(100 * row.bytes / row.seconds.min / read_bandwidth, 1)});
  }
  return table;
}

Table ratio_table(const Json& ratios) {
  Table table;
  table.headers = {"ratios of quest",      "context",       "page", "batch", "over dense",
                   "dense at bandwidth %", "over llama.cpp"};
  for (const Json& ratio : ratios) {
    table.rows.push_back({"budget " + ratio.at("budget").dump(), ratio.at("context").dump(),
                          ratio.at("page_size").dump(), ratio.at("batch").dump(),
                          number_or_dash(ratio.at("speedup_over_dense"), 1, 2, "x"),
                          number_or_dash(ratio.at("dense_bandwidth_share"), 100, 1),
                          number_or_dash(ratio.at("speedup_over_llama_cpp"), 1, 2, "x")});
  }
  return table;
}

Chart time_chart(const std::vector<AttentionRow>& rows) {
  Chart chart = empty_time_chart("Attention of one decode step, one layer");
  for (const AttentionRow& row : rows) add_point(chart, row.name(), row, row.seconds.median);
  sort_points(chart);
  return chart;
}

Chart stage_chart(const std::vector<AttentionRow>& rows, std::int64_t budget) {
  Chart chart = empty_time_chart("Full attention against the stages of quest at a budget of " +
                                 std::to_string(budget));
  for (const AttentionRow& row : rows) {
    if (row.engine == "dense") add_point(chart, "full", row, row.seconds.median);
    if (row.budget != budget || !row.stages) continue;
    add_point(chart, "quest", row, row.seconds.median);
    add_point(chart, "score", row, row.stages->score);
    add_point(chart, "select", row, row.stages->select);
    add_point(chart, "attend", row, row.stages->attend);
  }
  sort_points(chart);
  return chart;
}

}  // namespace quest::cli
