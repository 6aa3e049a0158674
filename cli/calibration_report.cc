// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "calibration_report.h"

#include "eval/eval_run.h"

namespace quest::cli {
namespace {

Json row_fields(const eval::PerplexitySummary& row) {
  return {{"relative_increase", row.relative_increase},
          {"interval", interval_fields(row.interval)},
          {"kl", row.kl},
          {"kv_bytes_share", row.cost.bytes_share()}};
}

}  // namespace

std::optional<std::size_t> choose(const std::vector<Checked>& checked, double target) {
  std::vector<double> increases;
  increases.reserve(checked.size());
  for (const Checked& each : checked) increases.push_back(each.calibrated.relative_increase);
  const std::optional<std::size_t> first = eval::least_within(increases, target);
  if (first && checked[*first].calibrated.cost.reads_like_dense()) return std::nullopt;
  return first;
}

std::string out_of_reach(const std::vector<Checked>& checked, double target) {
  std::string text =
      format("no sparse budget keeps the increase of the perplexity within %.2f %%", 100 * target);
  const char* separator = ": ";
  for (const Checked& each : checked) {
    text += separator;
    text += format("%s tokens %+.2f %%", each.candidate.calibrated.name.c_str(),
                   100 * each.calibrated.relative_increase);
    separator = ", ";
  }
  return text + "; allow more with --max-ppl-increase";
}

Json check_fields(const Checked& checked) {
  Json json = row_fields(checked.calibrated);
  json["uniform"] = row_fields(checked.uniform);
  return json;
}

std::string as_table(const std::vector<Checked>& checked, std::size_t chosen) {
  std::string table = format("%-8s %10s %8s %8s   %10s %8s %8s\n", "budget", "increase", "KL",
                             "KV read", "uniform", "KL", "KV read");
  for (std::size_t i = 0; i < checked.size(); ++i) {
    const eval::PerplexitySummary& mine = checked[i].calibrated;
    const eval::PerplexitySummary& uniform = checked[i].uniform;
    table += format("%-8s %+8.2f %% %8.4f %6.1f %%   %+8.2f %% %8.4f %6.1f %%%s\n",
                    checked[i].candidate.calibrated.name.c_str(), 100 * mine.relative_increase,
                    mine.kl, 100 * mine.cost.bytes_share(), 100 * uniform.relative_increase,
                    uniform.kl, 100 * uniform.cost.bytes_share(), i == chosen ? "  <- chosen" : "");
  }
  return table;
}

Json by_layer(const std::vector<std::int64_t>& values, std::int32_t num_kv_heads) {
  Json layers = Json::array();
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (i % static_cast<std::size_t>(num_kv_heads) == 0) layers.push_back(Json::array());
    layers.back().push_back(values[i]);
  }
  return layers;
}

double rounded(double value) { return std::stod(format("%.3g", value)); }

Json curve_fields(const eval::BudgetCurves& curves, bool by_mass) {
  Json layers = Json::array();
  for (std::int32_t layer = 0; layer < curves.num_layers; ++layer) {
    Json heads = Json::array();
    for (std::int32_t head = 0; head < curves.num_kv_heads; ++head) {
      Json harm = Json::array();
      for (const double value : curves.head(std::int64_t{layer} * curves.num_kv_heads + head)) {
        harm.push_back(rounded(value));
      }
      heads.push_back(std::move(harm));
    }
    layers.push_back(std::move(heads));
  }
  return {{"levels", curves.levels}, {by_mass ? "missed_mass" : "kl", layers}};
}

}  // namespace quest::cli
