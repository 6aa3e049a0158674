// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "measured_curves.h"

#include <cmath>
#include <cstdint>
#include <sstream>

#include "budget_profile.h"
#include "input.h"
#include "quest/error.h"

namespace quest::cli {
namespace {

using Json = nlohmann::json;

[[noreturn]] void refuse(const std::string& path, const char* what) {
  std::ostringstream text;
  text << "profile '" << path << "' " << what
       << "; measure them with quest calibrate without --curves";
  throw InvalidArgument(text.str());
}

bool is_list(const Json& json, std::size_t size) { return json.is_array() && json.size() == size; }

/// Ascending budgets of at least one token.
bool read_levels(const Json& list, std::vector<std::int64_t>& levels) {
  if (!list.is_array()) return false;
  for (const Json& level : list) {
    constexpr double kMost = 1e12;
    if (!level.is_number_integer() || level.get<double>() > kMost) return false;
    const std::int64_t least = levels.empty() ? 1 : levels.back() + 1;
    levels.push_back(level.get<std::int64_t>());
    if (levels.back() < least) return false;
  }
  return levels.size() >= 2;
}

/// [layers][heads][levels] of finite numbers.
bool read_harm(const Json& layers, eval::BudgetCurves& curves) {
  if (!is_list(layers, static_cast<std::size_t>(curves.num_layers))) return false;
  for (const Json& layer : layers) {
    if (!is_list(layer, static_cast<std::size_t>(curves.num_kv_heads))) return false;
    for (const Json& head : layer) {
      if (!is_list(head, curves.levels.size())) return false;
      for (const Json& value : head) {
        if (!value.is_number() || !std::isfinite(value.get<double>())) return false;
        curves.harm.push_back(value.get<double>());
      }
    }
  }
  return true;
}

}  // namespace

MeasuredCurves read_measured_curves(const std::string& path, const ModelInfo& model) {
  check_model(read_profile(path), model.path);
  const Json profile = Json::parse(read_input(path));
  MeasuredCurves measured;
  measured.curves.num_layers = model.num_layers;
  measured.curves.num_kv_heads = model.num_kv_heads;
  const Json curves = profile.value("curves", Json::object());
  if (!curves.is_object() || !curves.contains("kl") || !curves.contains("levels")) {
    refuse(path, "has no curves of divergences ('curves' with 'levels' and 'kl')");
  }
  if (!read_levels(curves["levels"], measured.curves.levels)) {
    refuse(path, "has 'levels' that are not ascending budgets");
  }
  if (!read_harm(curves["kl"], measured.curves)) {
    refuse(path, "has 'kl' that is not one number for every layer, KV head and level of the model");
  }
  for (const char* name : {"texts", "context", "tokens", "windows", "ranking"}) {
    if (profile.contains(name)) measured.origin[name] = profile[name];
  }
  // How pages were stored and values left out while they were measured may differ from now.
  measured.origin["curves_measured_with"] =
      profile.contains("curves_measured_with")
          ? profile["curves_measured_with"]
          : Json{{"summary", profile["policy"]["summary"]},
                 {"value_threshold", profile["policy"].value("value_threshold", 0.0)}};
  return measured;
}

}  // namespace quest::cli
