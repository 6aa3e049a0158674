// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "common_options.h"

#include <CLI/CLI.hpp>
#include <cmath>
#include <filesystem>
#include <sstream>

#include "budget_profile.h"
#include "quest/cuda.h"
#include "quest/error.h"

namespace quest::cli {
namespace {

constexpr std::int32_t kPageSizes[] = {8, 16, 32, 64};

std::string quoted(const std::string& text) { return "'" + text + "'"; }

std::int32_t checked_page_size(std::int32_t page_size) {
  for (const std::int32_t allowed : kPageSizes) {
    if (page_size == allowed) return page_size;
  }
  throw InvalidArgument("--page-size " + std::to_string(page_size) +
                        " is not available; use 8, 16, 32 or 64");
}

KvType checked_kv_type(const std::string& text) {
  const std::optional<KvType> type = parse_kv_type(text);
  if (!type)
    throw InvalidArgument("--kv " + quoted(text) + " is not available; use f32, f16, bf16 or q8_0");
  return *type;
}

SummaryType checked_summary_type(const std::string& text) {
  const std::optional<SummaryType> type = parse_summary_type(text);
  if (!type)
    throw InvalidArgument("--summary " + quoted(text) + " is unknown; use plain, q8 or q4");
  return *type;
}

/// Empty for the CPU. Throws if the GPU is not there to be used.
AttentionFactory checked_device(const std::string& text) {
  if (text == "cpu") return {};
  if (text != "cuda") {
    throw InvalidArgument("--device " + quoted(text) + " is unknown; use cpu or cuda");
  }
  require_cuda();
  return [](KvCache& cache, const SelectionPolicy& policy) {
    return make_cuda_backend(cache, policy);
  };
}

GroupMode checked_group_mode(const std::string& text) {
  const std::optional<GroupMode> mode = parse_group_mode(text);
  if (!mode) {
    throw InvalidArgument(
        "--gqa " + quoted(text) +
        " is unknown; use per-head, group-max, group-mean, group-softmax or quota");
  }
  return *mode;
}

std::string model_path(const CommonOptions& options) {
  return options.model.empty() ? default_model_path() : options.model;
}

/// The certificate that the options ask for. Throws InvalidArgument if other flags contradict it.
Certificate checked_certificate(const CommonOptions& options) {
  if (!options.certify) return {};
  const std::optional<Certificate> certificate = parse_certificate(*options.certify);
  if (!certificate) {
    throw InvalidArgument("--certify " + quoted(*options.certify) +
                          " is neither top-r=N, N a whole number from 1, nor mass=EPS, EPS between "
                          "0 and 1");
  }
  if (options.dense) {
    throw InvalidArgument(
        "--certify speaks of the pages that are left out, --dense leaves none out; give one");
  }
  if (options.paper) {
    throw InvalidArgument(
        "--certify reads as many pages as the proof needs, --paper a fixed "
        "number; give one");
  }
  if (options.beta && *options.beta != 1) {
    throw InvalidArgument("--certify is proven from the bound, beta 1; leave out --beta");
  }
  if (options.value_threshold.value_or(0) != 0) {
    throw InvalidArgument("--certify counts every value of a list; leave out --value-threshold");
  }
  if (options.gqa && parse_group_mode(*options.gqa) != GroupMode::kPerHead) {
    throw InvalidArgument("--certify holds for every query head; leave out --gqa");
  }
  return *certificate;
}

/// The profile that the options ask for. --paper, --dense-layers, --dense and --certify go without
/// one unless it is named.
std::optional<BudgetProfile> chosen_profile(const CommonOptions& options) {
  if (options.profile == "none") return std::nullopt;
  const bool uniform = options.paper || options.dense_layers.has_value();
  const std::string path = model_path(options);
  if (!options.profile.empty()) {
    if (uniform) {
      throw InvalidArgument(
          "--profile sets a budget for every layer; leave out --paper and --dense-layers");
    }
    BudgetProfile profile = read_profile(options.profile);
    if (!path.empty()) check_model(profile, path);
    return profile;
  }
  // A model that is not there is reported when it is loaded.
  if (uniform || options.dense || options.certify || path.empty() ||
      !std::filesystem::is_regular_file(path)) {
    return std::nullopt;
  }
  return packaged_profile(path);
}

/// The settings that the options choose among, before what the user names himself: --paper and
/// --profile choose other ones.
EngineOptions default_engine(const CommonOptions& options) {
  EngineOptions engine;
  if (const std::optional<BudgetProfile> profile = chosen_profile(options)) {
    engine.policy = profile->policy;
    engine.page_size = profile->page_size;
    engine.summary_type = profile->summary_type;
  } else if (options.paper) {
    engine.policy = SelectionPolicy::paper(SelectionPolicy{}.budget);
  }
  return engine;
}

SelectionPolicy checked_policy(const CommonOptions& options, const EngineOptions& engine) {
  const Certificate certificate = checked_certificate(options);
  // Anew also for the profile's own budget: pages may be larger than it was measured with.
  SelectionPolicy policy = policy_for_budget(engine, options.budget.value_or(engine.policy.budget));
  policy.dense = options.dense;
  policy.sinks = options.sinks.value_or(policy.sinks);
  policy.window = options.window.value_or(policy.window);
  policy.dense_layers = options.dense_layers.value_or(policy.dense_layers);
  policy.beta = options.beta.value_or(policy.beta);
  policy.value_threshold = options.value_threshold.value_or(policy.value_threshold);
  policy.crossover =
      options.crossover.value_or(options.paper ? 1.0F : SelectionPolicy::kMeasuredCrossover);
  if (options.gqa) policy.group_mode = checked_group_mode(*options.gqa);
  require_at_least("--sinks", policy.sinks, 0);
  require_at_least("--window", policy.window, 0);
  require_at_least("--dense-layers", policy.dense_layers, 0);
  if (!(policy.beta >= 0 && policy.beta <= 1)) {
    throw InvalidArgument("--beta " + std::to_string(policy.beta) + " must lie between 0 and 1");
  }
  if (!(policy.value_threshold >= 0 && policy.value_threshold <= 1)) {
    throw InvalidArgument("--value-threshold " + std::to_string(policy.value_threshold) +
                          " must lie between 0 (read every value) and 1");
  }
  if (!(policy.crossover >= 1)) {
    throw InvalidArgument("--crossover " + std::to_string(policy.crossover) +
                          " must be at least 1 (select wherever possible)");
  }
  return certificate.wanted() ? policy.with_certificate(certificate) : policy;
}

void check_sampling(const SamplingOptions& sampling) {
  const auto require = [](bool valid, const char* flag, float value, const char* range) {
    if (!valid) {
      throw InvalidArgument(std::string(flag) + " " + std::to_string(value) + " must be " + range);
    }
  };
  require(sampling.temperature >= 0 && std::isfinite(sampling.temperature), "--temperature",
          sampling.temperature, "0 (greedy) or more");
  require_at_least("--top-k", sampling.top_k, 0);
  require(sampling.top_p > 0 && sampling.top_p <= 1, "--top-p", sampling.top_p,
          "above 0 and at most 1");
  require(sampling.min_p >= 0 && sampling.min_p <= 1, "--min-p", sampling.min_p, "between 0 and 1");
}

template <typename T>
std::string with_default(const char* text, const T& value) {
  std::ostringstream description;
  description << text << " [" << value << "]";
  return description.str();
}

}  // namespace

void add_model_options(CLI::App& app, CommonOptions& options) {
  app.add_option("-m,--model", options.model, "GGUF file (default: the packaged model)");
  app.add_option("-t,--threads", options.threads, "Threads; 0: all cores")->capture_default_str();
  app.add_flag("--no-reencode{false}", options.reencode,
               "Keep weight types that are slow on this machine as they are");
  app.add_flag("--json", options.json, "Print one JSON object on stdout");
  app.add_option("-o,--output", options.output,
                 "Write the result to this file, whole or not at all");
  app.add_flag("-v,--verbose", options.verbose, "Show the log of ggml and llama on stderr");
}

void add_page_size_option(CLI::App& app, CommonOptions& options) {
  app.add_option("--page-size", options.page_size,
                 with_default("Tokens a page: 8, 16, 32 or 64", EngineOptions{}.page_size));
}

void add_summary_option(CLI::App& app, CommonOptions& options) {
  app.add_option("--summary", options.summary,
                 with_default("Page summaries: plain (the type of the keys), q8 (8-bit, half the "
                              "scan) or q4 (4-bit, a quarter)",
                              name_of(EngineOptions{}.summary_type)));
}

void add_storage_options(CLI::App& app, CommonOptions& options) {
  app.add_flag("--long-context", options.long_context,
               "Allow a context beyond what the model was trained for");
  add_page_size_option(app, options);
  app.add_option("--kv", options.kv, "Type of cached keys and values: f32, f16, bf16 or q8_0")
      ->capture_default_str();
  add_summary_option(app, options);
  app.add_option("--chunk", options.chunk, "Tokens of one prefill step")->capture_default_str();
}

void add_device_option(CLI::App& app, CommonOptions& options) {
  app.add_option("--device", options.device,
                 "Where the KV cache and attention are: cpu, or cuda for an NVIDIA GPU")
      ->capture_default_str();
}

void add_cache_options(CLI::App& app, CommonOptions& options) {
  app.add_option("-c,--context", options.context,
                 "Tokens that prompt and answer may take; 0: what the model was trained for")
      ->capture_default_str();
  add_storage_options(app, options);
}

void add_selection_options(CLI::App& app, CommonOptions& options) {
  const SelectionPolicy defaults;
  app.add_option("--profile", options.profile,
                 "Budgets by layer and head from quest calibrate; none: the same for all (default: "
                 "the packaged model's own)");
  app.add_option("--sinks", options.sinks,
                 with_default("First tokens, always read", defaults.sinks));
  app.add_option("--window", options.window,
                 with_default("Most recent tokens, always read", defaults.window));
  app.add_option("--dense-layers", options.dense_layers,
                 with_default("First layers, with full attention", defaults.dense_layers));
  app.add_option("--gqa", options.gqa,
                 with_default("How query heads share pages: per-head, group-max, group-mean, "
                              "group-softmax or quota",
                              name_of(defaults.group_mode)));
  app.add_option("--beta", options.beta,
                 with_default("Weight of a page's spread in its score, 0 to 1", defaults.beta));
  app.add_option("--value-threshold", options.value_threshold,
                 with_default("Leave out values of selected tokens whose weight for every head is "
                              "below this share of the mean weight, 0 to 1",
                              defaults.value_threshold));
  app.add_option("--crossover", options.crossover,
                 with_default("Read everything up to this many times the budget",
                              SelectionPolicy::kMeasuredCrossover));
  app.add_flag("--paper", options.paper,
               "The Quest paper's plain policy: per-head, beta 1, no sinks, no window");
}

void add_certificate_option(CLI::App& app, CommonOptions& options) {
  app.add_option("--certify", options.certify,
                 "Read on from the budget until it is proven that nothing more matters: top-r=N, "
                 "the N greatest logits of every query head are read; mass=EPS, at most that share "
                 "of the attention is left out");
}

void add_policy_options(CLI::App& app, CommonOptions& options) {
  app.add_option("--budget", options.budget,
                 with_default("Tokens that a head reads each step", SelectionPolicy{}.budget));
  add_selection_options(app, options);
  add_certificate_option(app, options);
  app.add_flag("--dense", options.dense, "Full attention, no selection");
}

void add_sampling_options(CLI::App& app, CommonOptions& options) {
  SamplingOptions& sampling = options.sampling;
  app.add_option("--temperature", sampling.temperature, "0: always the likeliest token")
      ->capture_default_str();
  app.add_option("--top-k", sampling.top_k, "Sample from this many tokens; 0: from all")
      ->capture_default_str();
  app.add_option("--top-p", sampling.top_p, "Sample from this share of the probability")
      ->capture_default_str();
  app.add_option("--min-p", sampling.min_p, "Drop tokens below this share of the likeliest one")
      ->capture_default_str();
  app.add_option("--seed", sampling.seed, "Seed of the random choices")->capture_default_str();
}

EngineOptions engine_options(const CommonOptions& options) {
  require_at_least("--threads", options.threads, 0);
  require_at_least("--context", options.context, 0);
  require_at_least("--chunk", options.chunk, 1);
  EngineOptions engine = default_engine(options);
  engine.context = options.context;
  engine.threads = options.threads;
  engine.chunk = options.chunk;
  if (options.page_size) engine.page_size = checked_page_size(*options.page_size);
  engine.kv_type = checked_kv_type(options.kv);
  if (options.summary) engine.summary_type = checked_summary_type(*options.summary);
  engine.policy = checked_policy(options, engine);
  engine.attention = checked_device(options.device);
  // A profile's threshold is for the CPU; asked for by name it is refused where it cannot be had.
  if (engine.attention && !options.value_threshold) engine.policy.value_threshold = 0;
  check_sampling(options.sampling);
  return engine;
}

SelectionPolicy policy_for_budget(const EngineOptions& engine, std::int64_t budget) {
  if (budget < engine.page_size) {
    throw InvalidArgument("--budget " + std::to_string(budget) + " is below one page of " +
                          std::to_string(engine.page_size) + " tokens; give at least one page");
  }
  return engine.policy.with_budget(budget, engine.page_size);
}

std::int64_t checked_question_budget(const std::optional<std::int64_t>& given, std::int64_t budget,
                                     std::int32_t page_size) {
  constexpr std::int64_t kTimesTheAnswers = 4;
  if (!given) return kTimesTheAnswers * budget;
  require_at_least("--question-budget", *given, page_size);
  return *given;
}

void require_at_least(const char* flag, std::int64_t value, std::int64_t minimum) {
  if (value >= minimum) return;
  throw InvalidArgument(std::string(flag) + " " + std::to_string(value) + " must be at least " +
                        std::to_string(minimum));
}

void require_at_most(const char* flag, std::int64_t value, std::int64_t maximum) {
  if (value <= maximum) return;
  throw InvalidArgument(std::string(flag) + " " + std::to_string(value) + " must be at most " +
                        std::to_string(maximum));
}

std::shared_ptr<const Model> load_model(const CommonOptions& options) {
  const std::string path = model_path(options);
  if (path.empty()) {
    throw InvalidArgument(
        "no model: name a GGUF file with -m (the packaged model is not installed)");
  }
  ModelOptions model;
  model.reencode = options.reencode;
  model.threads = options.threads;
  return Model::load(path, model);
}

std::int64_t context_limit(const CommonOptions& options, const ModelInfo& info) {
  if (options.context == 0) return info.context;
  if (options.context > info.context && !options.long_context) {
    throw InvalidArgument("--context " + std::to_string(options.context) + " exceeds the " +
                          std::to_string(info.context) + " tokens that '" + info.path +
                          "' was trained for; add --long-context to insist");
  }
  return options.context;
}

}  // namespace quest::cli
