// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "eval/eval_run.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <memory>
#include <span>
#include <utility>

#include "certificate_output.h"
#include "eval/resume_file.h"
#include "interrupt.h"
#include "list_option.h"
#include "progress.h"
#include "quest/error.h"
#include "quest/eval/fingerprint.h"

namespace quest::cli {
namespace {

std::string baseline_names() {
  std::string names;
  for (const eval::BaselineKind kind : eval::all_baselines()) {
    names += (names.empty() ? "" : ", ") + std::string(name_of(kind));
  }
  return names;
}

std::vector<eval::BaselineKind> chosen_baselines(const std::string& text) {
  const std::span<const eval::BaselineKind> all = eval::all_baselines();
  if (text.empty()) return {};
  if (text == "all") return {all.begin(), all.end()};
  std::vector<eval::BaselineKind> kinds;
  for (const std::string& word : parse_words("--baselines", text)) {
    const auto kind = eval::parse_baseline(word);
    if (!kind) {
      throw InvalidArgument("--baselines '" + word + "' is unknown; use " + baseline_names() +
                            ", or all");
    }
    if (std::find(kinds.begin(), kinds.end(), *kind) == kinds.end()) kinds.push_back(*kind);
  }
  return kinds;
}

}  // namespace

void add_eval_options(CLI::App& app, EvalOptions& options) {
  app.add_option("--budget", options.budgets,
                 "Tokens that a head reads each step; several with commas between")
      ->capture_default_str();
  add_certificate_option(app, options.common);
  app.add_flag("--dense", options.common.dense, "Refused: full attention always runs alongside");
  app.add_option("--resume", options.resume,
                 "Keep finished items in this file and take those of an earlier run from it");
  add_model_options(app, options.common);
  add_storage_options(app, options.common);
  add_selection_options(app, options.common);
}

void add_baseline_options(CLI::App& app, EvalOptions& options) {
  app.add_option("--baselines", options.baselines,
                 "Other ways to read as much, beside every budget, commas between: " +
                     baseline_names() + "; or all");
  app.add_option("--baseline-seed", options.baseline_seed, "Seed of the random pages")
      ->capture_default_str();
}

void add_question_budget(CLI::App& app, EvalOptions& options) {
  app.add_option("--question-budget", options.question_budget,
                 "Budget while the question is read [4 times --budget]");
}

EvalSetup checked_setup(const EvalOptions& options) {
  if (options.common.dense) {
    throw Error(
        "--dense leaves no sparse arm to evaluate: full attention always runs alongside; leave it "
        "out");
  }
  const std::vector<eval::BaselineKind> baselines = chosen_baselines(options.baselines);
  if (!baselines.empty() && options.common.certify) {
    throw InvalidArgument(
        "--baselines read as much as a budget allows, --certify as much as the proof needs; give "
        "one");
  }
  EvalSetup setup;
  setup.baselines = std::make_shared<eval::Baselines>();
  setup.engine = engine_options(options.common);
  const std::int32_t page_size = setup.engine.page_size;
  const std::string budgets =
      options.budgets.empty() ? std::to_string(setup.engine.policy.budget) : options.budgets;
  for (const std::int64_t budget : parse_list("--budget", budgets, "tokens")) {
    eval::Arm arm;
    arm.name = std::to_string(budget);
    arm.policy = policy_for_budget(setup.engine, budget);
    arm.question = arm.policy.with_budget(
        checked_question_budget(options.question_budget, budget, page_size), page_size);
    setup.arms.push_back(arm);
    for (const eval::BaselineKind kind : baselines) {
      eval::Arm other = arm;
      other.name += " " + std::string(name_of(kind));
      other.baseline = {kind, options.baseline_seed, setup.baselines};
      setup.arms.push_back(std::move(other));
    }
  }
  return setup;
}

EngineOptions eval_engine(const EvalSetup& setup, std::int64_t tokens) {
  EngineOptions engine = setup.engine;
  engine.context = tokens;
  const bool any = std::any_of(setup.arms.begin(), setup.arms.end(),
                               [](const eval::Arm& arm) { return arm.baseline.has_value(); });
  if (any) engine.attention = setup.baselines->attention();
  return engine;
}

void check_context(const EvalOptions& options, std::int64_t tokens, const ModelInfo& info) {
  if (tokens <= info.context || options.common.long_context) return;
  throw InvalidArgument(std::to_string(tokens) + " tokens exceed the " +
                        std::to_string(info.context) + " that '" + info.path +
                        "' was trained for; take fewer, or insist with --long-context");
}

void check_sparse(const eval::ArmCost& cost, const eval::Arm& arm, const std::string& where) {
  // Moving bytes twice is what this one is there to show.
  if (arm.baseline && arm.baseline->kind == eval::BaselineKind::kGather) return;
  // A certificate may need every page; how often it did is in the result.
  if (arm.policy.certificate.wanted()) return;
  if (!cost.reads_like_dense()) return;
  const AttentionCounters& attention = cost.counters.attention;
  throw Error("the arm with --budget " + arm.name + where + " read " +
              std::to_string(attention.bytes_read()) + " bytes where full attention reads " +
              std::to_string(attention.dense_bytes) +
              ": nothing was sparse and nothing was measured; lower the budget or take a longer "
              "context");
}

Json run_identity(const char* command, const EvalSetup& setup, const ModelInfo& info) {
  Json identity = {{"eval", command},
                   {"model", eval::file_fingerprint(info.path)},
                   {"compute_types", info.compute_types}};
  identity["policy"] = shared_policy_fields(setup.engine);
  identity["arms"] = Json::array();
  for (const eval::Arm& arm : setup.arms) {
    identity["arms"].push_back({{"name", arm.name},
                                {"budget", arm.policy.budget},
                                {"budget_table", arm.policy.budget_table},
                                {"question_budget", arm.question.budget}});
    if (arm.baseline && arm.baseline->kind == eval::BaselineKind::kRandom) {
      identity["arms"].back()["seed"] = arm.baseline->seed;
    }
  }
  return identity;
}

Json shared_policy_fields(const EngineOptions& options) {
  Json policy = policy_fields(options);
  policy.erase("budget");
  policy.erase("dense");
  return policy;
}

Json cost_fields(const eval::ArmCost& cost, const eval::Arm& arm) {
  const AttentionCounters& attention = cost.counters.attention;
  Json json = {{"kv_bytes_share", cost.bytes_share()},
               {"kv_bytes_share_without_summaries", cost.kv_share()},
               {"bytes_read", bytes_read_fields(attention)},
               {"pages_read", attention.pages_read},
               {"sparse_lists", attention.sparse_lists},
               {"dense_lists", attention.dense_lists},
               {"fallback_lists", cost.fallback_lists},
               {"tokens_per_second", cost.tokens_per_second()},
               {"seconds", seconds_fields(cost.counters)}};
  const Certificate& certificate = arm.policy.certificate;
  if (certificate.wanted()) {
    json["certificate"] = certificate_fields(certificate, attention.certificates);
  }
  return json;
}

Json interval_fields(const std::optional<eval::Interval>& interval) {
  if (!interval) return nullptr;
  return Json::array({interval->low, interval->high});
}

Json pack_cost(const eval::ArmCost& cost) {
  const EngineCounters& counters = cost.counters;
  const AttentionCounters& a = counters.attention;
  return {{"bytes", {a.k_bytes, a.v_bytes, a.summary_bytes, a.dense_bytes, a.probe_bytes}},
          {"certificates", pack_certificates(a.certificates)},
          {"pages", a.pages_read},
          {"lists", {a.sparse_lists, a.dense_lists, cost.fallback_lists}},
          {"steps", {counters.steps, counters.rows}},
          {"seconds",
           {counters.step_seconds, a.seconds.append, a.seconds.summarise, a.seconds.score,
            a.seconds.select, a.seconds.attend}}};
}

eval::ArmCost unpack_cost(const Json& json) {
  eval::ArmCost cost;
  EngineCounters& counters = cost.counters;
  AttentionCounters& a = counters.attention;
  const auto integer = [&json](const char* field, std::size_t i) {
    return json.at(field).at(i).get<std::int64_t>();
  };
  const auto seconds = [&json](std::size_t i) { return json.at("seconds").at(i).get<double>(); };
  a.k_bytes = integer("bytes", 0);
  a.v_bytes = integer("bytes", 1);
  a.summary_bytes = integer("bytes", 2);
  a.dense_bytes = integer("bytes", 3);
  a.probe_bytes = integer("bytes", 4);
  a.certificates = unpack_certificates(json.at("certificates"));
  a.pages_read = json.at("pages").get<std::int64_t>();
  a.sparse_lists = integer("lists", 0);
  a.dense_lists = integer("lists", 1);
  cost.fallback_lists = integer("lists", 2);
  counters.steps = integer("steps", 0);
  counters.rows = integer("steps", 1);
  counters.step_seconds = seconds(0);
  a.seconds = {seconds(1), seconds(2), seconds(3), seconds(4), seconds(5)};
  return cost;
}

std::vector<Json> run_items(const std::string& label, const std::vector<EvalItem>& items,
                            const std::string& resume_path, const Json& identity) {
  ResumeFile finished(resume_path, identity);
  std::int64_t total = 0;
  for (const EvalItem& item : items) {
    if (finished.find(item.name) == nullptr) total += item.tokens;
  }
  std::vector<Json> results(items.size());
  ProgressBar bar(label);
  std::int64_t before = 0;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (const Json* known = finished.find(items[i].name)) {
      results[i] = *known;
      continue;
    }
    if (interrupted()) continue;
    std::optional<Json> result = items[i].run([&](std::int64_t done, std::int64_t) {
      bar.update(before + done, total);
      return !interrupted();
    });
    before += items[i].tokens;
    if (result) results[i] = finished.add(items[i].name, std::move(*result));
  }
  return results;
}

int report(const EvalOptions& options, Output& output, const Json& json, const std::string& table,
           std::size_t finished, std::size_t items) {
  if (finished < items) {
    std::fprintf(stderr, "quest: stopped after %zu of %zu items%s\n", finished, items,
                 options.resume.empty() ? "" : "; the same command goes on from there");
  }
  if (finished > 0) {
    output.write(options.common.json ? dump(json) : table);
    output.finish();
  }
  return finished < items ? kInterruptedStatus : 0;
}

int name_width(const std::vector<eval::Arm>& arms) {
  std::size_t width = 8;
  for (const eval::Arm& arm : arms) width = std::max(width, arm.name.size());
  return static_cast<int>(width);
}

std::string format(const char* pattern, ...) {
  std::va_list arguments;
  va_start(arguments, pattern);
  std::va_list again;
  va_copy(again, arguments);
  const int size = std::vsnprintf(nullptr, 0, pattern, arguments);
  std::string text(static_cast<std::size_t>(std::max(size, 0)) + 1, '\0');
  std::vsnprintf(text.data(), text.size(), pattern, again);
  va_end(again);
  va_end(arguments);
  text.pop_back();
  return text;
}

}  // namespace quest::cli
