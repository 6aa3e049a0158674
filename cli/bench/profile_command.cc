// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "bench/bench_commands.h"
#include "bench/list_option.h"
#include "bench/probe.h"
#include "bench/spread.h"
#include "bench/workers.h"
#include "filler_text.h"
#include "interrupt.h"
#include "json_output.h"
#include "output.h"
#include "progress.h"
#include "quest/error.h"

namespace quest::cli {
namespace {

using Clock = std::chrono::steady_clock;

struct ProfileOptions {
  CommonOptions common;
  std::string contexts = "512,8192";
  std::int32_t repeat = 5;
  std::int64_t tokens = 16;
  bool prefill = false;
};

// One line of the breakdown, per token.
struct Line {
  std::string kind;
  double seconds = 0;
  double operations = 0;
  double bytes = 0;  // read: weights or KV; 0 where they do not matter
  double flops = 0;  // of matrix multiplications
};

// One run: the same tokens each time.
struct Run {
  std::int64_t tokens = 0;
  double seconds = 0;   // sampling included
  double sampling = 0;  // seconds
  StepProfile profile;  // nothing if the run was not profiled
  AttentionCounters attention;
  double seconds_per_token() const { return seconds / static_cast<double>(tokens); }
};

// What was measured at one context, per token.
struct Breakdown {
  std::int64_t context = 0;
  std::vector<Line> lines;
  Run run;                   // the profiled run behind the lines
  double plain_seconds = 0;  // a token without the profile
};

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double measured_bandwidth(int threads) {
  constexpr int kPasses = 5;
  Workers workers(threads);
  BandwidthProbe probe(workers, BandwidthProbe::default_bytes());
  for (int pass = 0; pass < kPasses; ++pass) probe.pass();
  return probe.result().median;
}

// An engine whose cache holds a text, and runs from its end.
class Profiled {
 public:
  Profiled(const std::shared_ptr<const Model>& model, const EngineOptions& options)
      : tokenizer_(model->tokenizer()), engine_(model, options), session_(engine_) {}

  // False after Ctrl-C.
  bool fill(std::int64_t count) {
    ProgressBar bar("reading");
    std::int64_t done = 0;
    return session_.prefill(filler(count), bar.callback(done));
  }

  // Decodes greedily, or reads as many tokens in one step, and takes the tokens back.
  Run run(std::int64_t tokens, bool prefill, bool profiled) {
    const std::int64_t length = session_.length();
    engine_.set_profiling(profiled);
    Run result;
    result.tokens = tokens;
    if (prefill) {
      const std::vector<Token> text = filler(tokens);
      engine_.reset_counters();
      const auto start = Clock::now();
      step(text, false);
      result.seconds = seconds_since(start);
    } else {
      decode(result);
    }
    result.profile = engine_.profile();
    result.attention = engine_.counters().attention;
    engine_.cache().truncate(session_.sequence(), length);
    return result;
  }

 private:
  std::vector<Token> filler(std::int64_t count) const {
    constexpr std::size_t kShortestSentence = 8;  // tokens; every word is one at least
    const auto wanted = static_cast<std::size_t>(count);
    std::vector<Token> tokens =
        tokenizer_.tokenize(filler_text(wanted / kShortestSentence + 1, 1), true, false);
    tokens.resize(wanted);
    return tokens;
  }

  std::span<const float> step(std::span<const Token> tokens, bool sparse) {
    StepRequest request;
    request.sequence = session_.sequence();
    request.tokens = tokens;
    request.sparse = sparse;
    return engine_.step({&request, 1});
  }

  void decode(Run& run) {
    Sampler sampler(tokenizer_, SamplingOptions{});
    Token token = 0;
    step({&token, 1}, true);  // the first step after a pause is not like the others
    engine_.reset_counters();
    const auto start = Clock::now();
    for (std::int64_t i = 0; i < run.tokens; ++i) {
      const std::span<const float> logits = step({&token, 1}, true);
      const auto sampled = Clock::now();
      token = sampler.sample(logits);
      run.sampling += seconds_since(sampled);
    }
    run.seconds = seconds_since(start);
  }

  const Tokenizer& tokenizer_;
  Engine engine_;
  Session session_;
};

std::vector<Line> lines_of(const Run& run) {
  const auto tokens = static_cast<double>(run.tokens);
  std::vector<Line> lines;
  for (std::size_t i = 0; i < kNumOperations; ++i) {
    const OperationProfile& part = run.profile.operations[i];
    const auto operation = static_cast<Operation>(i);
    const bool attention = operation == Operation::kAttention;
    const std::int64_t bytes = attention ? run.attention.bytes_read() : part.weight_bytes;
    lines.push_back({std::string(name_of(operation)), part.seconds / tokens,
                     static_cast<double>(part.count) / tokens, static_cast<double>(bytes) / tokens,
                     part.flops / tokens});
  }
  const double outside = run.seconds - run.profile.graph_seconds() - run.sampling;
  lines.push_back({"outside", outside / tokens});
  lines.push_back({"sampling", run.sampling / tokens});
  return lines;
}

// Runs with and without the profile in turns; the profiled run of median length is told, whole, so
// that its parts add up. Nothing after Ctrl-C.
std::optional<Breakdown> profile_at(const std::shared_ptr<const Model>& model,
                                    EngineOptions options, std::int64_t context,
                                    const ProfileOptions& plan) {
  options.context = context;
  const std::int64_t tokens = plan.prefill ? options.chunk : plan.tokens;
  Profiled profiled(model, options);
  if (!profiled.fill(context - tokens - 1)) return {};
  profiled.run(tokens, plan.prefill, true);  // warms up
  std::vector<Run> runs;
  std::vector<double> plain;
  for (std::int32_t round = 0; round < plan.repeat; ++round) {
    if (interrupted()) return {};
    plain.push_back(profiled.run(tokens, plan.prefill, false).seconds_per_token());
    runs.push_back(profiled.run(tokens, plan.prefill, true));
  }
  const auto middle = runs.begin() + static_cast<std::ptrdiff_t>(runs.size() / 2);
  std::nth_element(runs.begin(), middle, runs.end(),
                   [](const Run& a, const Run& b) { return a.seconds < b.seconds; });
  return Breakdown{context, lines_of(*middle), *middle, spread(plain).median};
}

double operations_per_token(const Run& run) {
  return static_cast<double>(run.profile.graph_operations()) / static_cast<double>(run.tokens);
}

Json as_json(const Breakdown& result, double bandwidth) {
  const double seconds = result.run.seconds_per_token();
  Json json = {{"context", result.context},
               {"seconds_per_token", seconds},
               {"unprofiled_seconds_per_token", result.plain_seconds},
               {"operations", operations_per_token(result.run)},
               {"empty_operation_seconds", result.run.profile.empty_operation_seconds}};
  json["kinds"] = Json::array();
  for (const Line& line : result.lines) {
    const bool reads = line.bytes > 0;
    json["kinds"].push_back(
        {{"kind", line.kind},
         {"seconds", line.seconds},
         {"share", ratio_or_null(line.seconds, seconds)},
         {"operations", line.operations},
         {"bytes", reads ? Json(line.bytes) : Json(nullptr)},
         {"bandwidth_share",
          reads ? ratio_or_null(line.bytes / bandwidth, line.seconds) : Json(nullptr)},
         {"flops", line.flops > 0 ? Json(line.flops) : Json(nullptr)}});
  }
  EngineCounters counters;
  counters.attention = result.run.attention;
  counters.step_seconds = result.run.profile.step_seconds;
  json["seconds"] = seconds_fields(counters);  // of the whole run, as everywhere else
  return json;
}

std::string line_text(const Line& line, double seconds, double bandwidth) {
  char text[160];
  std::snprintf(text, sizeof text, "%-12s %10.1f %6.1f%% %11.1f", line.kind.c_str(),
                line.seconds * 1e6, 100 * line.seconds / seconds, line.operations);
  std::string result = text;
  if (line.bytes > 0) {
    const double rate = line.bytes / line.seconds;
    std::snprintf(text, sizeof text, " %9.2f %8.1f %12.0f%%", line.bytes / 1048576, rate * 1e-9,
                  100 * rate / bandwidth);
    result += text;
  }
  if (line.flops > 0) {
    std::snprintf(text, sizeof text, " %9.1f", line.flops / line.seconds * 1e-9);
    result += text;
  }
  return result + "\n";
}

std::string as_table(const Breakdown& result, double bandwidth) {
  const double seconds = result.run.seconds_per_token();
  char text[256];
  std::snprintf(text, sizeof text,
                "context %lld: %.3f ms a token (%.3f unprofiled), read bandwidth %.1f GB/s\n"
                "%-12s %10s %7s %11s %9s %8s %13s %9s\n",
                static_cast<long long>(result.context), seconds * 1e3, result.plain_seconds * 1e3,
                bandwidth * 1e-9, "kind", "us/token", "share", "operations", "MiB read", "GB/s",
                "of bandwidth", "GFLOP/s");
  std::string table = text;
  for (const Line& line : result.lines) table += line_text(line, seconds, bandwidth);
  const double empty = result.run.profile.empty_operation_seconds;
  const double operations = operations_per_token(result.run);
  std::snprintf(text, sizeof text,
                "an operation that does nothing takes %.2f us; %.1f of them %.1f us (%.1f%%)\n",
                empty * 1e6, operations, empty * operations * 1e6,
                100 * empty * operations / seconds);
  return table + text;
}

std::vector<std::int64_t> checked_contexts(const ProfileOptions& options) {
  require_at_least("--repeat", options.repeat, 1);
  require_at_least("--tokens", options.tokens, 1);
  const std::int64_t tokens = options.prefill ? options.common.chunk : options.tokens;
  const std::vector<std::int64_t> contexts = parse_list("--context", options.contexts, "tokens");
  for (const std::int64_t context : contexts) {
    if (context <= tokens + 1) {
      throw InvalidArgument("--context " + std::to_string(context) + " leaves no text before the " +
                            std::to_string(tokens) + " profiled tokens; raise it");
    }
  }
  return contexts;
}

int bench_profile(const ProfileOptions& options) {
  catch_interrupts();
  const std::vector<std::int64_t> contexts = checked_contexts(options);
  EngineOptions engine = engine_options(options.common);
  engine.threads = resolved_threads(engine.threads);
  Output output(options.common.output);
  const auto model = load_model(options.common);
  for (const std::int64_t context : contexts) {
    CommonOptions common = options.common;
    common.context = context;
    context_limit(common, model->info());
  }
  const double bandwidth = measured_bandwidth(engine.threads);
  std::vector<Breakdown> results;
  for (const std::int64_t context : contexts) {
    const auto result = profile_at(model, engine, context, options);
    if (!result) break;
    results.push_back(*result);
  }
  if (options.common.json) {
    Json json = common_fields(model->info(), engine.threads);
    json["tokens"] = options.prefill ? engine.chunk : options.tokens;
    json["prefill"] = options.prefill;
    json["repeat"] = options.repeat;
    json["finish"] = interrupted() ? "stopped" : "end";
    json["read_bandwidth"] = bandwidth;
    json["rows"] = Json::array();
    for (const Breakdown& result : results) json["rows"].push_back(as_json(result, bandwidth));
    json["policy"] = policy_fields(engine);
    output.write(dump(json));
  } else {
    for (const Breakdown& result : results) output.write(as_table(result, bandwidth));
  }
  output.finish();
  return interrupted() ? kInterruptedStatus : 0;
}

}  // namespace

CLI::App* add_bench_profile(CLI::App& bench, int& status) {
  auto options = std::make_shared<ProfileOptions>();
  CLI::App* command = bench.add_subcommand(
      "profile", "Where the time of a decoded token goes, by kind of operation");
  command->add_option("--context", options->contexts, "Contexts in tokens, commas between")
      ->capture_default_str();
  command->add_option("--repeat", options->repeat, "Runs with the profile, and without, in turns")
      ->capture_default_str();
  command->add_option("--tokens", options->tokens, "Tokens decoded in a run")
      ->capture_default_str();
  command->add_flag("--prefill", options->prefill,
                    "Profile the reading of the last --chunk tokens instead of decoding");
  add_model_options(*command, options->common);
  add_storage_options(*command, options->common);
  add_policy_options(*command, options->common);
  command->callback([options, &status] { status = bench_profile(*options); });
  return command;
}

}  // namespace quest::cli
