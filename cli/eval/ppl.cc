// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <cmath>
#include <memory>

#include "certificate_output.h"
#include "eval/eval_commands.h"
#include "eval/eval_run.h"
#include "eval/text_windows.h"
#include "interrupt.h"
#include "quest/eval/perplexity.h"

namespace quest::cli {
namespace {

struct PplOptions {
  EvalOptions eval;
  std::vector<std::string> texts;
  eval::PerplexityPlan plan;
  std::int64_t windows = 1;
  std::int64_t positions = 4;
};

Json pack(const eval::PerplexityWindow& window) {
  Json json = {
      {"full_nll", window.full_nll}, {"full", pack_cost(window.full)}, {"arms", Json::array()}};
  for (const eval::ArmTokens& arm : window.arms) {
    json["arms"].push_back(
        {{"nll", arm.nll}, {"kl", arm.kl}, {"agrees", arm.agrees}, {"cost", pack_cost(arm.cost)}});
  }
  return json;
}

eval::PerplexityWindow unpack_window(const Json& json) {
  eval::PerplexityWindow window;
  window.full_nll = json.at("full_nll").get<std::vector<double>>();
  window.full = unpack_cost(json.at("full"));
  for (const Json& arm : json.at("arms")) {
    window.arms.push_back(
        {arm.at("nll").get<std::vector<double>>(), arm.at("kl").get<std::vector<double>>(),
         arm.at("agrees").get<std::vector<std::uint8_t>>(), unpack_cost(arm.at("cost"))});
  }
  return window;
}

Json row_fields(const eval::Arm& arm, const eval::PerplexitySummary& row) {
  Json json = {{"arm", arm.method()},
               {"budget", arm.policy.budget},
               {"perplexity_full", row.perplexity_full},
               {"perplexity", row.perplexity},
               {"relative_increase", row.relative_increase},
               {"interval", interval_fields(row.interval)},
               {"kl", row.kl},
               {"agreement", row.agreement}};
  json.update(cost_fields(row.cost, arm));
  json["tokens_per_second_full"] = row.full.tokens_per_second();
  json["tokens"] = row.tokens;
  json["positions"] = Json::array();
  for (const eval::PositionBucket& bucket : row.positions) {
    json["positions"].push_back({{"first", bucket.first},
                                 {"last", bucket.last},
                                 {"perplexity_full", bucket.perplexity_full},
                                 {"perplexity", bucket.perplexity}});
  }
  return json;
}

std::string as_table(const std::vector<eval::Arm>& arms,
                     const std::vector<eval::PerplexitySummary>& rows) {
  const int width = name_width(arms);
  std::string table = format("%-*s %10s %9s %21s %8s %7s %8s %8s %8s %10s\n", width, "budget",
                             "perplexity", "increase", "95 % interval", "KL", "top-1", "K and V",
                             "KV read", "fallback", "tokens/s");
  const eval::PerplexitySummary& first = rows.front();
  table += format("%-*s %10.4f %9s %21s %8s %7s %8s %8s %8s %10.1f\n", width, "full",
                  first.perplexity_full, "", "", "", "", "100.0 %", "100.0 %", "",
                  first.full.tokens_per_second());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const eval::PerplexitySummary& row = rows[i];
    std::string interval = "-";
    if (row.interval) {
      interval = format("%+.2f .. %+.2f %%", 100 * std::expm1(row.interval->low),
                        100 * std::expm1(row.interval->high));
    }
    table +=
        format("%-*s %10.4f %+7.2f %% %21s %8.4f %5.1f %% %6.1f %% %6.1f %% %8lld %10.1f\n", width,
               arms[i].name.c_str(), row.perplexity, 100 * row.relative_increase, interval.c_str(),
               row.kl, 100 * row.agreement, 100 * row.cost.kv_share(), 100 * row.cost.bytes_share(),
               static_cast<long long>(row.cost.fallback_lists), row.cost.tokens_per_second());
  }
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::string line =
        certificate_line(arms[i].policy.certificate, rows[i].cost.counters.attention.certificates);
    if (!line.empty()) table += format("\n%-*s %s", width, arms[i].name.c_str(), line.c_str());
  }
  table += format("\n%-*s", width, "tokens");
  for (const eval::PositionBucket& bucket : first.positions) {
    table += format(" %14s", format("%lld..%lld", static_cast<long long>(bucket.first),
                                    static_cast<long long>(bucket.last))
                                 .c_str());
  }
  table += format("\n%-*s", width, "full");
  for (const eval::PositionBucket& bucket : first.positions) {
    table += format(" %14.4f", bucket.perplexity_full);
  }
  for (std::size_t i = 0; i < rows.size(); ++i) {
    table += format("\n%-*s", width, arms[i].name.c_str());
    for (const eval::PositionBucket& bucket : rows[i].positions) {
      table += format(" %14.4f", bucket.perplexity);
    }
  }
  return table + "\n";
}

void check(const PplOptions& options) {
  require_at_least("--context", options.plan.context, 1);
  require_at_least("--tokens", options.plan.tokens, 1);
  require_at_least("--rows", options.plan.rows, 1);
  require_at_least("--windows", options.windows, 1);
  require_at_least("--positions", options.positions, 1);
}

/// The windows' results; fewer than there are items after Ctrl-C.
std::vector<eval::PerplexityWindow> run_windows(const PplOptions& options,
                                                const std::vector<EvalItem>& items,
                                                const Json& identity) {
  std::vector<eval::PerplexityWindow> finished;
  for (const Json& result : run_items("Perplexity", items, options.eval.resume, identity)) {
    if (!result.is_null()) finished.push_back(unpack_window(result));
  }
  return finished;
}

int eval_ppl(const PplOptions& options) {
  catch_interrupts();
  check(options);
  const EvalSetup setup = checked_setup(options.eval);
  const std::vector<eval::Arm>& arms = setup.arms;
  Output output(options.eval.common.output);
  const auto model = load_model(options.eval.common);
  const eval::PerplexityPlan& plan = options.plan;
  check_context(options.eval, plan.context + plan.tokens, model->info());
  Json identity = run_identity("ppl", setup, model->info());
  identity["context"] = plan.context;
  identity["tokens"] = plan.tokens;
  identity["rows"] = plan.rows;
  identity["windows"] = options.windows;
  const auto windows =
      text_windows(model->tokenizer(), options.texts, plan, options.windows, identity);

  Engine engine(model, eval_engine(setup, eval::perplexity_cache_tokens(
                                              plan, static_cast<std::int64_t>(arms.size()),
                                              setup.engine.page_size)));
  std::vector<EvalItem> items;
  items.reserve(windows.size());
  for (const TextWindow& window : windows) {
    items.push_back({window.name, plan.context + plan.tokens,
                     [&](const Progress& progress) -> std::optional<Json> {
                       const auto result =
                           eval::run_window(engine, plan, window.tokens, arms, progress);
                       if (!result) return std::nullopt;
                       return pack(*result);
                     }});
  }
  const auto finished = run_windows(options, items, identity);
  std::vector<eval::PerplexitySummary> rows;
  Json json = common_fields(model->info(), engine.options().threads);
  Json row_list = Json::array();
  for (std::size_t i = 0; i < arms.size() && !finished.empty(); ++i) {
    rows.push_back(eval::summarise(finished, i, plan, options.positions));
    check_sparse(rows.back().cost, arms[i]);
    row_list.push_back(row_fields(arms[i], rows.back()));
  }
  if (!rows.empty()) json.update(row_list.front());
  json["context"] = plan.context;
  json["windows"] = finished.size();
  json["finish"] = finished.size() < items.size() ? "stopped" : "end";
  json["policy"] = shared_policy_fields(engine.options());
  json["rows"] = row_list;
  return report(options.eval, output, json, rows.empty() ? "" : as_table(arms, rows),
                finished.size(), items.size());
}

}  // namespace

void add_eval_ppl(CLI::App& eval, int& status) {
  auto options = std::make_shared<PplOptions>();
  CLI::App* command =
      eval.add_subcommand("ppl", "Perplexity of a text, sparse and full on the same tokens");
  command->add_option("--text", options->texts, "Text file; may be repeated")->required();
  command->add_option("--context", options->plan.context, "Tokens read before the first prediction")
      ->capture_default_str();
  command->add_option("--tokens", options->plan.tokens, "Tokens predicted in a window")
      ->capture_default_str();
  command->add_option("--windows", options->windows, "Windows of each text")->capture_default_str();
  command->add_option("--rows", options->plan.rows, "Tokens of one step, each with its own pages")
      ->capture_default_str();
  command->add_option("--positions", options->positions, "Parts of a window that are shown apart")
      ->capture_default_str();
  add_eval_options(*command, options->eval);
  add_baseline_options(*command, options->eval);
  command->callback([options, &status] { status = eval_ppl(*options); });
}

}  // namespace quest::cli
