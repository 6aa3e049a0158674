// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <memory>
#include <numeric>

#include "budget_profile.h"
#include "calibration_candidates.h"
#include "calibration_report.h"
#include "commands.h"
#include "eval/eval_run.h"
#include "eval/text_windows.h"
#include "interrupt.h"
#include "measured_curves.h"
#include "progress.h"
#include "quest/error.h"
#include "quest/eval/calibration.h"
#include "quest/eval/fingerprint.h"

namespace quest::cli {
namespace {

/// A head whose divergence alone is below this does not need more, in nats a token.
constexpr double kNegligible = 1e-5;

struct CalibrateOptions {
  CommonOptions common;
  std::vector<std::string> texts;
  eval::PerplexityPlan plan{3600, 96, 32};
  std::int64_t windows = 1;
  std::string increase;        ///< empty: kDefaultIncrease, unless there is a mass
  std::optional<double> mass;  ///< instead of the increase
  std::string curves;          ///< profile whose curves are divided anew; empty: measure
};

constexpr const char* kDefaultIncrease = "1%";

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

/// A progress bar for work that Ctrl-C may stop.
Progress watched(ProgressBar& bar) {
  return [&bar](std::int64_t done, std::int64_t total) {
    bar.update(done, total);
    return !interrupted();
  };
}

/// How pages are ranked and which are always read.
struct Ranking {
  SelectionPolicy policy;
  Json tried = Json::array();
};

/// Replaces the policy by the variant with the least divergence. False after Ctrl-C.
bool take_best(Engine& engine, const CalibrateOptions& options, const Windows& windows,
               const std::vector<SelectionPolicy>& variants, Ranking& ranking) {
  ProgressBar bar("Choosing how pages are ranked");
  const auto kl =
      eval::measure_policies(engine, options.plan, windows.curves, variants, watched(bar));
  if (!kl) return false;
  for (std::size_t i = 0; i < variants.size(); ++i) {
    ranking.tried.push_back({{"gqa", std::string(name_of(variants[i].group_mode))},
                             {"beta", rounded(variants[i].beta)},
                             {"sinks", variants[i].sinks},
                             {"window", variants[i].window},
                             {"kl", rounded((*kl)[i])}});
  }
  ranking.policy =
      variants[static_cast<std::size_t>(std::min_element(kl->begin(), kl->end()) - kl->begin())];
  return true;
}

/// Tries group modes and betas together, then sinks and windows, where the user named none, with
/// the same budget everywhere: a sixth of the context. Nothing after Ctrl-C.
std::optional<Ranking> choose_ranking(Engine& engine, const CalibrateOptions& options,
                                      const Windows& windows) {
  Ranking ranking{engine.options().policy};
  const CommonOptions& named = options.common;
  const std::int64_t budget =
      std::max<std::int64_t>(options.plan.context / 6, engine.options().page_size);
  ranking.policy = ranking.policy.with_budget(budget, engine.options().page_size);
  std::vector<GroupMode> modes{GroupMode::kGroupMean, GroupMode::kGroupMax,
                               GroupMode::kGroupSoftmax};
  if (named.gqa) modes = {ranking.policy.group_mode};
  std::vector<float> betas{0.2F, 0.35F, 0.5F, 0.7F, 1.0F};
  if (named.beta) betas = {ranking.policy.beta};
  std::vector<SelectionPolicy> variants;
  for (const GroupMode mode : modes) {
    for (const float beta : betas) {
      variants.push_back(ranking.policy);
      variants.back().group_mode = mode;
      variants.back().beta = beta;
    }
  }
  if (!take_best(engine, options, windows, variants, ranking)) return std::nullopt;
  std::vector<std::int32_t> sinks{4, 16, 64};
  if (named.sinks) sinks = {ranking.policy.sinks};
  std::vector<std::int32_t> recent{32, 64, 128};
  if (named.window) recent = {ranking.policy.window};
  variants.clear();
  for (const std::int32_t first : sinks) {
    for (const std::int32_t last : recent) {
      variants.push_back(ranking.policy);
      variants.back().sinks = first;
      variants.back().window = last;
    }
  }
  if (!take_best(engine, options, windows, variants, ranking)) return std::nullopt;
  return ranking;
}

/// Nothing after Ctrl-C.
std::optional<eval::BudgetCurves> measure(eval::Fidelity& fidelity, const CalibrateOptions& options,
                                          const Windows& windows) {
  Engine& engine = fidelity.engine();
  const SelectionPolicy& policy = engine.options().policy;
  std::vector<std::int64_t> levels = budget_levels(engine.options(), options.plan);
  ProgressBar bar("Measuring every head");
  if (options.mass) {
    const std::int64_t page = engine.options().page_size;
    levels.push_back((options.plan.window_tokens() + page - 1) / page * page);
    return eval::measure_mass_curves(fidelity, options.plan, windows.curves, policy, levels,
                                     watched(bar));
  }
  return eval::measure_budget_curves(engine, options.plan, windows.curves, policy, levels,
                                     kNegligible, watched(bar));
}

/// Mean share of the mass that all heads read with this policy on the check windows. Nothing after
/// Ctrl-C.
std::optional<double> checked_mass(eval::Fidelity& fidelity, const CalibrateOptions& options,
                                   const Windows& windows, const eval::Arm& arm) {
  eval::FidelityPlan plan;
  plan.text = options.plan;
  double mass = 0;
  double tokens = 0;
  ProgressBar bar("Checking the mass");
  for (const std::vector<Token>& window : windows.checks) {
    const auto run = fidelity.run(plan, window, arm, watched(bar));
    if (!run) return std::nullopt;
    for (const eval::HeadFidelity& head : run->teacher_forced.heads) {
      mass += head.mass;
      tokens += static_cast<double>(head.tokens);
    }
  }
  return mass / tokens;
}

/// Nothing after Ctrl-C.
std::optional<std::vector<Checked>> check_candidates(Engine& engine,
                                                     const CalibrateOptions& options,
                                                     const Windows& windows,
                                                     const std::vector<Candidate>& made) {
  std::vector<eval::Arm> arms;
  for (const Candidate& candidate : made) {
    arms.push_back(candidate.calibrated);
    arms.push_back(candidate.uniform);
  }
  std::vector<eval::PerplexityWindow> finished;
  ProgressBar bar("Checking budgets");
  for (const std::vector<Token>& window : windows.checks) {
    const auto result = eval::run_window(
        engine, options.plan, window, arms, [&](std::int64_t done, std::int64_t total) {
          const auto before = static_cast<std::int64_t>(finished.size()) * total;
          bar.update(before + done, total * static_cast<std::int64_t>(windows.checks.size()));
          return !interrupted();
        });
    if (!result) return std::nullopt;
    finished.push_back(*result);
  }
  std::vector<Checked> checked;
  for (std::size_t i = 0; i < made.size(); ++i) {
    checked.push_back({made[i], eval::summarise(finished, 2 * i, options.plan, 1),
                       eval::summarise(finished, 2 * i + 1, options.plan, 1)});
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
  if ((options.mass ? 1 : 0) + (options.increase.empty() ? 0 : 1) +
          (options.common.budget ? 1 : 0) >
      1) {
    throw InvalidArgument("--mass, --max-ppl-increase and --budget are three targets; give one");
  }
  if (options.mass && !(*options.mass > 0 && *options.mass < 1)) {
    throw InvalidArgument(
        format("--mass %g must lie between 0 and 1, such as 0.95", *options.mass));
  }
  require_at_least("--context", options.plan.context, 1);
  require_at_least("--tokens", options.plan.tokens, 1);
  require_at_least("--windows", options.windows, 1);
  const CommonOptions& named = options.common;
  const bool ranks =
      named.page_size || named.sinks || named.window || named.gqa || named.beta || named.paper;
  if (!options.curves.empty() && (options.mass || ranks)) {
    throw InvalidArgument(
        "--curves takes divergences, and how pages are ranked, from a profile; leave out --mass, "
        "--page-size, --sinks, --window, --gqa, --beta and --paper");
  }
}

struct Calibrated {
  Json fields;  ///< of the profile
  std::string table;
};

/// What was measured before is taken instead of measuring. Nothing after Ctrl-C. Throws Error if
/// the target is out of reach.
std::optional<Calibrated> calibrate(eval::Fidelity& fidelity, const CalibrateOptions& options,
                                    const Windows& windows, double target,
                                    const std::optional<MeasuredCurves>& before) {
  Engine& engine = fidelity.engine();
  std::optional<Ranking> ranking;
  std::optional<eval::BudgetCurves> curves;
  if (before) {
    ranking = Ranking{engine.options().policy, before->origin.value("ranking", Json::array())};
    curves = before->curves;
  } else {
    ranking = choose_ranking(engine, options, windows);
    if (!ranking) return std::nullopt;
    engine.set_policy(ranking->policy);
    curves = measure(fidelity, options, windows);
    if (!curves) return std::nullopt;
  }
  std::optional<std::size_t> chosen;
  std::vector<Candidate> made;
  if (options.mass) {
    made = candidates_by_mass(ranking->policy, *curves, *options.mass, chosen);
  } else {
    made = candidates_by_total(ranking->policy, engine.options().page_size, *curves,
                               options.common.budget, chosen);
  }
  const auto checked = check_candidates(engine, options, windows, made);
  if (!checked) return std::nullopt;
  Json fields;
  if (options.mass) {
    const auto mass = checked_mass(fidelity, options, windows, made[*chosen].calibrated);
    if (!mass) return std::nullopt;
    if (*mass < *options.mass) {
      throw Error(
          format("the budgets for --mass %g read %.4f of it on other windows; take more "
                 "--windows and --tokens, or ask for more",
                 *options.mass, *mass));
    }
    fields["mass"] = *options.mass;
    fields["checked_mass"] = rounded(*mass);
  } else if (!chosen) {
    chosen = choose(*checked, target);
    if (!chosen) throw Error(out_of_reach(*checked, target));
    fields["max_ppl_increase"] = target;
  }
  fields["policy"] = shared_policy_fields(engine.options());
  fields["budget"] = made[*chosen].calibrated.policy.budget;
  fields["check"] = check_fields((*checked)[*chosen]);
  fields["tables"] = Json::array();
  for (const Checked& each : *checked) {
    const SelectionPolicy& policy = each.candidate.calibrated.policy;
    fields["tables"].push_back({{"budget", policy.budget},
                                {"budgets", by_layer(policy.budget_table, curves->num_kv_heads)},
                                {"check", check_fields(each)}});
  }
  fields["ranking"] = ranking->tried;
  fields["curves"] = curve_fields(*curves, options.mass.has_value());
  return Calibrated{std::move(fields), as_table(*checked, *chosen)};
}

int run_calibrate(CalibrateOptions options) {
  catch_interrupts();
  check(options);
  const double target =
      parse_increase(options.increase.empty() ? kDefaultIncrease : options.increase);
  options.common.profile = options.curves.empty() ? "none" : options.curves;
  EngineOptions engine = engine_options(options.common);
  engine.policy.dense_layers = 0;
  engine.policy.crossover = 1;
  engine.policy.budget_table.clear();
  engine.policy.calibrated.clear();
  Output output(options.common.output);
  const auto model = load_model(options.common);
  const ModelInfo& info = model->info();
  std::optional<MeasuredCurves> before;
  if (!options.curves.empty()) before = read_measured_curves(options.curves, info);
  EvalOptions context_options;
  context_options.common = options.common;
  check_context(context_options, options.plan.context + options.plan.tokens, info);
  Json identity;
  const Windows windows = split(
      text_windows(model->tokenizer(), options.texts, options.plan, 2 * options.windows, identity));
  // Enough arms for every half step of the square root of two between the levels.
  constexpr std::int64_t kMostArms = 64;
  engine.context = eval::perplexity_cache_tokens(options.plan, kMostArms, engine.page_size);
  eval::Fidelity fidelity(model, engine);
  auto result = calibrate(fidelity, options, windows, target, before);
  if (!result) return kInterruptedStatus;

  Json profile = {{"quest_profile", kProfileFormat},
                  {"model_name", info.name},
                  {"model_fingerprint", eval::file_fingerprint(info.path)},
                  {"texts", identity["texts"]},
                  {"context", options.plan.context},
                  {"tokens", options.plan.tokens},
                  {"windows", options.windows}};
  if (before) {
    // The fields above are those of the check; the curves come from elsewhere.
    profile["checked_on"] = {{"texts", identity["texts"]},
                             {"context", options.plan.context},
                             {"tokens", options.plan.tokens},
                             {"windows", options.windows}};
    profile.update(before->origin);
  }
  profile.update(result->fields);
  const std::string text = profile.dump(-1) + "\n";
  output.write(text);
  output.finish();
  Output shown("");
  shown.write(options.common.json ? text : result->table);
  shown.finish();
  return 0;
}

}  // namespace

void add_calibrate_command(CLI::App& app, int& status) {
  auto options = std::make_shared<CalibrateOptions>();
  CLI::App* command = app.add_subcommand(
      "calibrate", "Find budgets for every layer and head that keep a model's quality");
  command->add_option("--text", options->texts, "Text file; may be repeated")->required();
  command->add_option(
      "--max-ppl-increase", options->increase,
      std::string("Perplexity that may be lost, such as 0.01 [") + kDefaultIncrease + "]");
  command->add_option("--budget", options->common.budget,
                      "Instead: tokens that a head reads on average, as well spent as can be");
  command->add_option("--mass", options->mass,
                      "Instead: attention mass that every head must read, such as 0.95");
  command->add_option("--curves", options->curves,
                      "Divide anew by the curves of this profile instead of measuring them");
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
  command->callback([options, &status] { status = run_calibrate(*options); });
}

}  // namespace quest::cli
