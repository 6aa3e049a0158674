// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <memory>
#include <numeric>

#include "budget_profile.h"
#include "commands.h"
#include "eval/eval_run.h"
#include "eval/text_windows.h"
#include "interrupt.h"
#include "progress.h"
#include "quest/error.h"
#include "quest/eval/calibration.h"
#include "quest/eval/fingerprint.h"

namespace quest::cli {
namespace {

/// A head whose divergence alone is below this does not need more, in nats a token.
constexpr double kNegligible = 1e-6;

struct CalibrateOptions {
  CommonOptions common;
  std::vector<std::string> texts;
  eval::PerplexityPlan plan{3600, 96, 32};
  std::int64_t windows = 2;
  std::string target = "1%";
};

/// "1%" or "0.01".
double parse_increase(const std::string& text) {
  const bool percent = !text.empty() && text.back() == '%';
  const char* const end = text.data() + text.size() - (percent ? 1 : 0);
  double value = 0;
  const auto [at, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || at != end || !(value > 0) || !std::isfinite(value)) {
    throw InvalidArgument("--max-ppl-increase '" + text +
                          "' is not a positive share, such as 1% or 0.01");
  }
  return percent ? value / 100 : value;
}

/// Budgets from the forced pages up to what still leaves pages out, each twice the one before.
std::vector<std::int64_t> budget_levels(const EngineOptions& engine, std::int64_t context) {
  const std::int64_t page = engine.page_size;
  const auto pages = [page](std::int64_t tokens) { return (tokens + page - 1) / page; };
  const std::int64_t forced = (pages(engine.policy.sinks) + pages(engine.policy.window) + 1) * page;
  std::vector<std::int64_t> levels;
  for (std::int64_t level = std::max(forced, 2 * page); level <= context / 2; level *= 2) {
    levels.push_back(level);
  }
  if (levels.size() >= 2) return levels;
  throw InvalidArgument("--context " + std::to_string(context) + " is too short for pages of " +
                        std::to_string(page) + " tokens; give at least " +
                        std::to_string(4 * std::max(forced, 2 * page)));
}

/// Arms of equal budgets in pairs: calibrated, uniform.
std::vector<eval::Arm> check_arms(const SelectionPolicy& policy, const eval::BudgetCurves& curves) {
  std::vector<eval::Arm> arms;
  const auto add = [&](const std::string& name, std::int64_t budget,
                       std::vector<std::int64_t> table) {
    eval::Arm arm;
    arm.name = name;
    arm.policy = policy;
    arm.policy.budget = budget;
    arm.policy.budget_table = std::move(table);
    arms.push_back(std::move(arm));
  };
  const auto most = static_cast<double>(curves.levels.back());
  for (double tokens = std::sqrt(2.0) * static_cast<double>(curves.levels.front()); tokens < most;
       tokens *= std::sqrt(2.0)) {
    std::vector<std::int64_t> table = eval::allocate_budgets(curves, tokens);
    const double sum = std::accumulate(table.begin(), table.end(), 0.0);
    const auto mean =
        static_cast<std::int64_t>(std::llround(sum / static_cast<double>(table.size())));
    if (!arms.empty() && arms[arms.size() - 2].policy.budget == mean) break;  // nothing to gain
    const std::size_t heads = table.size();
    add(std::to_string(mean), mean, std::move(table));
    add(std::to_string(mean) + " uniform", mean, std::vector<std::int64_t>(heads, mean));
  }
  return arms;
}

struct Checked {
  std::vector<eval::Arm> arms;
  std::vector<eval::PerplexitySummary> rows;  ///< as the arms
};

/// The first calibrated arm within the target. Throws Error if there is none.
std::size_t choose(const Checked& checked, double target) {
  std::size_t nearest = 0;
  for (std::size_t i = 0; i < checked.arms.size(); i += 2) {
    const double increase = checked.rows[i].relative_increase;
    if (increase <= target && !checked.rows[i].cost.reads_like_dense()) return i;
    if (increase < checked.rows[nearest].relative_increase) nearest = i;
  }
  throw Error(
      format("no budget up to %s tokens keeps the increase of the perplexity within "
             "%.2f %%: the least was %.2f %% at %s; allow more with --max-ppl-increase",
             checked.arms[checked.arms.size() - 2].name.c_str(), 100 * target,
             100 * checked.rows[nearest].relative_increase, checked.arms[nearest].name.c_str()));
}

Json check_fields(const Checked& checked, std::size_t arm) {
  const auto fields = [&](std::size_t i) -> Json {
    const eval::PerplexitySummary& row = checked.rows[i];
    return {{"relative_increase", row.relative_increase},
            {"interval", interval_fields(row.interval)},
            {"kl", row.kl},
            {"kv_bytes_share", row.cost.bytes_share()}};
  };
  Json json = fields(arm);
  json["budget"] = checked.arms[arm].policy.budget;
  json["uniform"] = fields(arm + 1);
  return json;
}

std::string as_table(const Checked& checked, std::size_t chosen) {
  std::string table = format("%-8s %10s %8s %8s   %10s %8s %8s\n", "budget", "increase", "KL",
                             "KV read", "uniform", "KL", "KV read");
  for (std::size_t i = 0; i < checked.arms.size(); i += 2) {
    const eval::PerplexitySummary& mine = checked.rows[i];
    const eval::PerplexitySummary& uniform = checked.rows[i + 1];
    table += format("%-8s %+8.2f %% %8.4f %6.1f %%   %+8.2f %% %8.4f %6.1f %%%s\n",
                    checked.arms[i].name.c_str(), 100 * mine.relative_increase, mine.kl,
                    100 * mine.cost.bytes_share(), 100 * uniform.relative_increase, uniform.kl,
                    100 * uniform.cost.bytes_share(), i == chosen ? "  <- chosen" : "");
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

Json curve_fields(const eval::BudgetCurves& curves) {
  Json layers = Json::array();
  for (std::int32_t layer = 0; layer < curves.num_layers; ++layer) {
    Json heads = Json::array();
    for (std::int32_t head = 0; head < curves.num_kv_heads; ++head) {
      Json kl = Json::array();
      for (const double value : curves.head(std::int64_t{layer} * curves.num_kv_heads + head)) {
        kl.push_back(std::stod(format("%.3g", value)));
      }
      heads.push_back(std::move(kl));
    }
    layers.push_back(std::move(heads));
  }
  return {{"levels", curves.levels}, {"kl", layers}};
}

/// Even windows measure the curves, odd ones check what they promise.
struct Windows {
  std::vector<std::vector<Token>> curves;
  std::vector<std::vector<Token>> checks;
};

Windows split(std::vector<TextWindow> windows) {
  Windows result;
  for (std::size_t i = 0; i < windows.size(); ++i) {
    (i % 2 == 0 ? result.curves : result.checks).push_back(std::move(windows[i].tokens));
  }
  return result;
}

/// Nothing after Ctrl-C.
std::optional<eval::BudgetCurves> measure(Engine& engine, const CalibrateOptions& options,
                                          const Windows& windows) {
  ProgressBar bar("Measuring every head");
  return eval::measure_budget_curves(engine, options.plan, windows.curves, engine.options().policy,
                                     budget_levels(engine.options(), options.plan.context),
                                     kNegligible, [&bar](std::int64_t done, std::int64_t total) {
                                       bar.update(done, total);
                                       return !interrupted();
                                     });
}

/// Nothing after Ctrl-C.
std::optional<Checked> check_allocations(Engine& engine, const CalibrateOptions& options,
                                         const Windows& windows, const eval::BudgetCurves& curves) {
  Checked checked;
  checked.arms = check_arms(engine.options().policy, curves);
  std::vector<eval::PerplexityWindow> finished;
  ProgressBar bar("Checking budgets");
  for (const std::vector<Token>& window : windows.checks) {
    const auto result = eval::run_window(
        engine, options.plan, window, checked.arms, [&](std::int64_t done, std::int64_t total) {
          const auto before = static_cast<std::int64_t>(finished.size()) * total;
          bar.update(before + done, total * static_cast<std::int64_t>(windows.checks.size()));
          return !interrupted();
        });
    if (!result) return std::nullopt;
    finished.push_back(*result);
  }
  for (std::size_t i = 0; i < checked.arms.size(); ++i) {
    checked.rows.push_back(eval::summarise(finished, i, options.plan, 1));
  }
  return checked;
}

void check(const CalibrateOptions& options) {
  if (options.common.output.empty()) {
    throw InvalidArgument("give -o FILE: where the profile goes");
  }
  if (options.common.dense || options.common.dense_layers || !options.common.profile.empty()) {
    throw InvalidArgument(
        "--dense, --dense-layers and --profile set budgets, which calibration finds; leave them "
        "out");
  }
  require_at_least("--context", options.plan.context, 1);
  require_at_least("--tokens", options.plan.tokens, 1);
  require_at_least("--windows", options.windows, 1);
}

int calibrate(CalibrateOptions options) {
  catch_interrupts();
  check(options);
  const double target = parse_increase(options.target);
  options.common.profile = "none";
  EngineOptions engine_settings = engine_options(options.common);
  engine_settings.policy.dense_layers = 0;
  engine_settings.policy.crossover = 1;
  Output output(options.common.output);
  const auto model = load_model(options.common);
  EvalOptions context_options;
  context_options.common = options.common;
  check_context(context_options, options.plan.context + options.plan.tokens, model->info());
  Json identity;
  const Windows windows = split(
      text_windows(model->tokenizer(), options.texts, options.plan, 2 * options.windows, identity));
  // Enough arms for every half step of the square root of two between the levels.
  constexpr std::int64_t kMostArms = 64;
  engine_settings.context =
      eval::perplexity_cache_tokens(options.plan, kMostArms, options.common.page_size);
  Engine engine(model, engine_settings);
  const auto curves = measure(engine, options, windows);
  if (!curves) return kInterruptedStatus;
  const auto checked = check_allocations(engine, options, windows, *curves);
  if (!checked) return kInterruptedStatus;
  const std::size_t chosen = choose(*checked, target);

  const ModelInfo& info = model->info();
  Json profile = {{"quest_profile", kProfileFormat},
                  {"model_name", info.name},
                  {"model_fingerprint", eval::file_fingerprint(info.path)},
                  {"texts", identity["texts"]},
                  {"context", options.plan.context},
                  {"tokens", options.plan.tokens},
                  {"windows", options.windows},
                  {"max_ppl_increase", target}};
  profile["policy"] = shared_policy_fields(engine.options());
  profile["budget"] = checked->arms[chosen].policy.budget;
  profile["budgets"] = by_layer(checked->arms[chosen].policy.budget_table, curves->num_kv_heads);
  profile["check"] = check_fields(*checked, chosen);
  profile["checks"] = Json::array();
  for (std::size_t i = 0; i < checked->arms.size(); i += 2) {
    profile["checks"].push_back(check_fields(*checked, i));
  }
  profile["curves"] = curve_fields(*curves);
  const std::string text = profile.dump(-1) + "\n";
  output.write(text);
  output.finish();
  Output shown("");
  shown.write(options.common.json ? text : as_table(*checked, chosen));
  shown.finish();
  return 0;
}

}  // namespace

void add_calibrate_command(CLI::App& app, int& status) {
  auto options = std::make_shared<CalibrateOptions>();
  CLI::App* command = app.add_subcommand(
      "calibrate", "Find budgets for every layer and head that keep a model's quality");
  command->add_option("--text", options->texts, "Text file; may be repeated")->required();
  command
      ->add_option("--max-ppl-increase", options->target,
                   "Perplexity that may be lost, such as 1% or 0.01")
      ->capture_default_str();
  command->add_option("--context", options->plan.context, "Tokens read before the first prediction")
      ->capture_default_str();
  command->add_option("--tokens", options->plan.tokens, "Tokens predicted in a window")
      ->capture_default_str();
  command
      ->add_option("--windows", options->windows,
                   "Windows of each text to measure on; as many more check the result")
      ->capture_default_str();
  add_model_options(*command, options->common);
  add_storage_options(*command, options->common);
  add_selection_options(*command, options->common);
  command->callback([options, &status] { status = calibrate(*options); });
}

}  // namespace quest::cli
