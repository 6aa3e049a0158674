// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "quest/eval/fidelity.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <iterator>
#include <memory>

#include "eval/eval_commands.h"
#include "eval/eval_run.h"
#include "eval/fidelity_report.h"
#include "eval/text_windows.h"
#include "interrupt.h"
#include "quest/error.h"

namespace quest::cli {
namespace {

struct FidelityOptions {
  EvalOptions eval;
  std::vector<std::string> texts;
  eval::FidelityPlan plan;
  std::int64_t windows = 1;
  std::string html;
};

Json pack(const eval::FidelityRun& run) {
  Json heads = Json::array();
  for (const eval::HeadFidelity& head : run.heads) {
    heads.push_back({head.tokens, head.page_share, head.page_recall, head.mass, head.cosine,
                     head.relative_l2, head.regret, head.slack, head.slack_pages, head.slack_bins});
  }
  return {{"shape", {run.num_layers, run.num_q_heads}},
          {"heads", heads},
          {"jaccard", run.jaccard},
          {"jaccard_tokens", run.jaccard_tokens},
          {"kl", run.kl},
          {"agrees", run.agrees},
          {"same_tokens", run.same_tokens},
          {"cost", pack_cost(run.cost)}};
}

eval::FidelityRun unpack_run(const Json& json) {
  eval::FidelityRun run;
  run.num_layers = json.at("shape").at(0).get<std::int32_t>();
  run.num_q_heads = json.at("shape").at(1).get<std::int32_t>();
  for (const Json& packed : json.at("heads")) {
    eval::HeadFidelity& head = run.heads.emplace_back();
    head.tokens = packed.at(0).get<std::int64_t>();
    double* const sums[] = {&head.page_share,  &head.page_recall, &head.mass, &head.cosine,
                            &head.relative_l2, &head.regret,      &head.slack};
    for (std::size_t i = 0; i < std::size(sums); ++i) *sums[i] = packed.at(i + 1).get<double>();
    head.slack_pages = packed.at(8).get<std::int64_t>();
    for (std::size_t i = 0; i < eval::kSlackBins; ++i) {
      head.slack_bins[i] = packed.at(9).at(i).get<std::int64_t>();
    }
  }
  run.jaccard = json.at("jaccard").get<std::vector<double>>();
  run.jaccard_tokens = json.at("jaccard_tokens").get<std::vector<std::int64_t>>();
  run.kl = json.at("kl").get<std::vector<double>>();
  run.agrees = json.at("agrees").get<std::vector<std::uint8_t>>();
  run.same_tokens = json.at("same_tokens").get<std::vector<std::int64_t>>();
  run.cost = unpack_cost(json.at("cost"));
  return run;
}

double agreement(const eval::FidelityRun& run) {
  const auto agreeing = std::count(run.agrees.begin(), run.agrees.end(), std::uint8_t{1});
  return static_cast<double>(agreeing) /
         static_cast<double>(std::max<std::size_t>(1, run.agrees.size()));
}

Json layer_fields(const eval::FidelityRun& run, std::int32_t layer) {
  const auto i = static_cast<std::size_t>(layer);
  Json json = {
      {"layer", layer},
      {"sparse", is_sparse_layer(run, layer)},
      {"jaccard", ratio_or_null(run.jaccard[i], static_cast<double>(run.jaccard_tokens[i]))}};
  for (const HeadFigure& figure : head_figures()) {
    Json values = Json::array();
    for (std::int32_t h = 0; h < run.num_q_heads; ++h) {
      values.push_back(figure.value(run.head(layer, h)));
    }
    json[figure.name] = values;
  }
  Json p50 = Json::array();
  Json p95 = Json::array();
  for (std::int32_t h = 0; h < run.num_q_heads; ++h) {
    p50.push_back(run.head(layer, h).slack_quantile(0.5));
    p95.push_back(run.head(layer, h).slack_quantile(0.95));
  }
  json["slack_p50"] = p50;
  json["slack_p95"] = p95;
  return json;
}

Json run_fields(const eval::FidelityRun& run, const eval::Arm& arm) {
  Json json = {
      {"tokens", run.kl.size()}, {"kl", eval::mean(run.kl)}, {"agreement", agreement(run)}};
  if (!run.same_tokens.empty()) json["same_tokens"] = run.same_tokens;
  for (const HeadFigure& figure : head_figures()) {
    const double value = sparse_mean(run, figure);
    json[figure.name] = std::isnan(value) ? Json(nullptr) : Json(value);
  }
  json.update(cost_fields(run.cost, arm));
  json["layers"] = Json::array();
  for (std::int32_t layer = 0; layer < run.num_layers; ++layer) {
    json["layers"].push_back(layer_fields(run, layer));
  }
  return json;
}

std::string as_table(const eval::FidelityRun& forced, const eval::FidelityRun& free) {
  std::string table = format("%-54s %15s %13s\n", "mean over the heads of sparse layers",
                             "teacher-forced", "free-running");
  for (const HeadFigure& figure : head_figures()) {
    table += format("%-54s %15.4f %13.4f\n", figure.title, sparse_mean(forced, figure),
                    sparse_mean(free, figure));
  }
  table += format("%-54s %15.4f %13.4f\n", "KL of the final logits", eval::mean(forced.kl),
                  eval::mean(free.kl));
  table +=
      format("%-54s %15.4f %13.4f\n", "Same likeliest token", agreement(forced), agreement(free));
  table += format("%-54s %15.4f %13.4f\n", "KV bytes read, share of full attention",
                  forced.cost.bytes_share(), free.cost.bytes_share());
  table += format("%-54s", "Tokens written as full attention would, by window");
  for (const std::int64_t same : free.same_tokens) table += " " + std::to_string(same);
  return table + "\n";
}

int eval_fidelity(const FidelityOptions& options) {
  catch_interrupts();
  const eval::FidelityPlan& plan = options.plan;
  require_at_least("--context", plan.text.context, 1);
  require_at_least("--tokens", plan.text.tokens, 1);
  require_at_least("--windows", options.windows, 1);
  require_at_least("--top", plan.top, 1);
  const EvalSetup setup = checked_setup(options.eval);
  const std::vector<eval::Arm>& arms = setup.arms;
  if (arms.size() != 1) {
    throw InvalidArgument("--budget '" + options.eval.budgets + "': fidelity looks at one budget");
  }
  Output output(options.eval.common.output);
  std::optional<Output> html;
  if (!options.html.empty()) html.emplace(options.html);
  const auto model = load_model(options.eval.common);
  check_context(options.eval, plan.text.context + plan.text.tokens, model->info());
  Json identity = run_identity("fidelity", setup, model->info());
  identity["context"] = plan.text.context;
  identity["tokens"] = plan.text.tokens;
  identity["top"] = plan.top;
  identity["windows"] = options.windows;
  const auto windows =
      text_windows(model->tokenizer(), options.texts, plan.text, options.windows, identity);

  eval::Fidelity fidelity(
      model, eval_engine(setup, eval::Fidelity::cache_tokens(plan, setup.engine.page_size)));
  std::vector<EvalItem> items;
  items.reserve(windows.size());
  for (const TextWindow& window : windows) {
    items.push_back({window.name, plan.text.context + 2 * plan.text.tokens,
                     [&](const Progress& progress) -> std::optional<Json> {
                       const auto result =
                           fidelity.run(plan, window.tokens, arms.front(), progress);
                       if (!result) return std::nullopt;
                       return Json{{"teacher_forced", pack(result->teacher_forced)},
                                   {"free_running", pack(result->free_running)}};
                     }});
  }
  std::optional<eval::FidelityRun> forced;
  std::optional<eval::FidelityRun> free;
  std::size_t finished = 0;
  const auto add = [](std::optional<eval::FidelityRun>& sum, const Json& json) {
    eval::FidelityRun run = unpack_run(json);
    if (sum) {
      *sum += run;
    } else {
      sum = std::move(run);
    }
  };
  for (const Json& result : run_items("Fidelity", items, options.eval.resume, identity)) {
    if (result.is_null()) continue;
    ++finished;
    add(forced, result.at("teacher_forced"));
    add(free, result.at("free_running"));
  }

  Json json = common_fields(model->info(), fidelity.engine().options().threads);
  std::string table;
  if (forced && free) {
    check_sparse(forced->cost, arms.front());
    json["context"] = plan.text.context;
    json["windows"] = finished;
    json["top"] = plan.top;
    json["finish"] = finished < items.size() ? "stopped" : "end";
    json["policy"] = policy_fields(fidelity.engine().options());
    json["policy"]["budget"] = arms.front().policy.budget;
    Json facts = json;
    json["teacher_forced"] = run_fields(*forced, arms.front());
    json["free_running"] = run_fields(*free, arms.front());
    table = as_table(*forced, *free);
    if (html) {
      html->write(fidelity_html(facts, *forced, *free));
      html->finish();
    }
  }
  return report(options.eval, output, json, table, finished, items.size());
}

}  // namespace

void add_eval_fidelity(CLI::App& eval, int& status) {
  auto options = std::make_shared<FidelityOptions>();
  options->plan.text.tokens = 32;
  CLI::App* command = eval.add_subcommand(
      "fidelity", "Layer by layer and head by head, sparse attention beside full attention");
  command->add_option("--text", options->texts, "Text file; may be repeated")->required();
  command->add_option("--context", options->plan.text.context, "Tokens read before")
      ->capture_default_str();
  command
      ->add_option("--tokens", options->plan.text.tokens,
                   "Tokens of a window forced, and as many written freely")
      ->capture_default_str();
  command->add_option("--windows", options->windows, "Windows of each text")->capture_default_str();
  command->add_option("--top", options->plan.top, "Tokens whose pages make the page recall")
      ->capture_default_str();
  command->add_option("--html", options->html, "Write heat maps to this file");
  add_eval_options(*command, options->eval);
  command->callback([options, &status] { status = eval_fidelity(*options); });
}

}  // namespace quest::cli
