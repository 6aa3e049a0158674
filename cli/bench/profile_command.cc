// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bench/bench_commands.h"
#include "bench/bench_fields.h"
#include "bench/probe.h"
#include "bench/probe_option.h"
#include "bench/profile.h"
#include "bench/table.h"
#include "bench/workers.h"
#include "interrupt.h"
#include "list_option.h"
#include "output.h"
#include "quest/error.h"

namespace quest::cli {
namespace {

struct ProfileOptions {
  CommonOptions common;
  std::string contexts = "512,8192";
  std::int32_t repeat = 5;
  std::int64_t tokens = 16;
  bool prefill = false;
  std::int64_t probe_mib = 0;  // 0: what suits the caches
};

std::vector<ProfilePlan> plans(const ProfileOptions& options) {
  require_at_least("--repeat", options.repeat, 1);
  require_at_least("--tokens", options.tokens, 1);
  ProfilePlan plan;
  plan.tokens = options.prefill ? options.common.chunk : options.tokens;
  plan.prefill = options.prefill;
  plan.repeat = options.repeat;
  std::vector<ProfilePlan> plans;
  for (const std::int64_t context : parse_list("--context", options.contexts, "tokens")) {
    if (context <= plan.tokens + 1) {
      throw InvalidArgument("--context " + std::to_string(context) + " leaves no text before the " +
                            std::to_string(plan.tokens) + " profiled tokens; raise it");
    }
    plan.context = context;
    plans.push_back(plan);
  }
  return plans;
}

Json breakdown_fields(const Breakdown& result, double bandwidth) {
  Json json = {{"context", result.context},
               {"seconds_per_token", result.seconds},
               {"unprofiled_seconds_per_token", result.plain_seconds},
               {"operations", result.operations},
               {"empty_operation_seconds", result.empty_seconds}};
  json["kinds"] = Json::array();
  for (const ProfileLine& line : result.lines) {
    const Json rate = ratio_or_null(line.bytes, line.seconds);
    json["kinds"].push_back(
        {{"kind", line.kind},
         {"seconds", line.seconds},
         {"share", ratio_or_null(line.seconds, result.seconds)},
         {"operations", line.operations},
         {"bytes", line.bytes > 0 ? Json(line.bytes) : Json(nullptr)},
         {"bandwidth_share",
          line.bytes > 0 && !rate.is_null() ? ratio_or_null(rate, bandwidth) : Json(nullptr)},
         {"flops", line.flops > 0 ? Json(line.flops) : Json(nullptr)}});
  }
  json["bytes_read"] = bytes_read_fields(result.counters.attention);  // of the whole run
  json["seconds"] = seconds_fields(result.counters);                  // of the whole run
  return json;
}

Table breakdown_table(const Breakdown& result, double bandwidth) {
  const double empty = result.empty_seconds * result.operations;
  Table table;
  table.title = "At " + std::to_string(result.context) +
                " tokens: " + fixed(result.seconds * 1e3, 3) + " ms a token (" +
                fixed(result.plain_seconds * 1e3, 3) + " without the profile); " +
                fixed(result.operations, 1) + " operations that do nothing would take " +
                fixed(empty * 1e6, 1) + " us (" + fixed(100 * empty / result.seconds, 1) + " %)";
  table.headers = {"kind",     "us/token", "share %",     "operations",
                   "MiB read", "GB/s",     "bandwidth %", "GFLOP/s"};
  for (const ProfileLine& line : result.lines) {
    const bool reads = line.bytes > 0;
    const double rate = line.bytes / line.seconds;
    table.rows.push_back(
        {line.kind, fixed(line.seconds * 1e6, 1), fixed(100 * line.seconds / result.seconds, 1),
         fixed(line.operations, 1), reads ? fixed(line.bytes / 1048576, 2) : "-",
         reads ? fixed(rate * 1e-9, 1) : "-", reads ? fixed(100 * rate / bandwidth, 1) : "-",
         line.flops > 0 ? fixed(line.flops / line.seconds * 1e-9, 1) : "-"});
  }
  return table;
}

void write_result(const ProfileOptions& options, const EngineOptions& engine,
                  const std::vector<Breakdown>& results, const ReadBandwidth& bandwidth,
                  const std::string& model, Output& output) {
  if (options.common.json) {
    Json json = bench_fields(model, engine.threads, bandwidth);
    json["tokens"] = options.prefill ? engine.chunk : options.tokens;
    json["prefill"] = options.prefill;
    json["repeat"] = options.repeat;
    json["rows"] = Json::array();
    for (const Breakdown& result : results) {
      json["rows"].push_back(breakdown_fields(result, bandwidth.best));
    }
    json["policy"] = policy_fields(engine);
    output.write(dump(json));
  } else {
    output.write(bandwidth_line(bandwidth, engine.threads) + "\n");
    for (const Breakdown& result : results) {
      output.write("\n" + as_text(breakdown_table(result, bandwidth.best)));
    }
  }
  output.finish();
}

int bench_profile(const ProfileOptions& options) {
  catch_interrupts();
  EngineOptions engine = engine_options(options.common);
  const std::vector<ProfilePlan> all = plans(options);
  const std::int64_t probe_bytes = checked_probe_bytes(options.probe_mib);
  engine.threads = resolved_threads(engine.threads);
  Output output(options.common.output);
  const auto model = load_model(options.common);
  for (const ProfilePlan& plan : all) {
    CommonOptions common = options.common;
    common.context = plan.context;
    context_limit(common, model->info());
  }
  Workers workers(engine.threads);
  BandwidthProbe probe(workers, probe_bytes);
  probe.passes();
  std::vector<Breakdown> results;
  for (const ProfilePlan& plan : all) {
    const auto result = run_profile(model, engine, plan);
    if (!result) return kInterruptedStatus;
    results.push_back(*result);
    probe.passes();
  }
  write_result(options, engine, results, probe.result(), model->info().path, output);
  return 0;
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
  add_probe_option(*command, options->probe_mib);
  add_model_options(*command, options->common);
  add_storage_options(*command, options->common);
  add_policy_options(*command, options->common);
  command->callback([options, &status] { status = bench_profile(*options); });
  return command;
}

}  // namespace quest::cli
