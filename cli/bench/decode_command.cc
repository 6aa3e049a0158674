// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <algorithm>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/bench_commands.h"
#include "bench/bench_fields.h"
#include "bench/decode.h"
#include "bench/decode_report.h"
#include "bench/llama_peer.h"
#include "bench/probe.h"
#include "bench/probe_option.h"
#include "bench/report_output.h"
#include "bench/step_bytes.h"
#include "bench/workers.h"
#include "interrupt.h"
#include "list_option.h"
#include "quest/error.h"
#include "quest/kv_type.h"

namespace quest::cli {
namespace {

struct BenchOptions {
  CommonOptions common;
  std::string contexts = "2048,8192";
  std::string budgets = "512";
  std::string peer = "llama.cpp";
  std::int32_t repeat = 3;
  std::int64_t tokens = 32;
  bool table = false;
  std::int64_t probe_mib = 0;  // 0: what suits the caches
  std::string html;
  std::string svg;
};

/// llama.cpp: with flash attention and without.
constexpr std::string_view kPeers[] = {"llama.cpp", "llama.cpp-flash", "llama.cpp-plain", "none"};

std::vector<DecodeBenchPlan> plans(const BenchOptions& options) {
  require_at_least("--repeat", options.repeat, 1);
  require_at_least("--tokens", options.tokens, 2);
  if (std::ranges::find(kPeers, options.peer) == std::end(kPeers)) {
    throw InvalidArgument("--peer '" + options.peer +
                          "' is unknown; use llama.cpp, llama.cpp-flash, llama.cpp-plain or none");
  }
  if (options.table && options.common.json) {
    throw InvalidArgument("--table and --json exclude each other; give one");
  }
  std::vector<DecodeBenchPlan> plans;
  for (const std::int64_t context : parse_list("--context", options.contexts, "tokens")) {
    if (context <= options.tokens) {
      throw InvalidArgument("--context " + std::to_string(context) + " leaves no text before the " +
                            std::to_string(options.tokens) + " decoded --tokens; raise it");
    }
    DecodeBenchPlan plan;
    plan.context = context;
    plan.budgets = parse_list("--budget", options.budgets, "tokens");
    plan.tokens = options.tokens;
    plan.repeat = options.repeat;
    plans.push_back(std::move(plan));
  }
  return plans;
}

/// Whether llama.cpp's arms use flash attention, an entry for each.
std::vector<bool> peer_arms(const std::string& peer, KvType kv) {
  std::vector<bool> arms;
  for (const bool flash_attention : {true, false}) {
    const std::string_view arm = flash_attention ? "llama.cpp-flash" : "llama.cpp-plain";
    if (peer != "llama.cpp" && peer != arm) continue;
    if (LlamaPeer::available(kv, flash_attention)) {
      arms.push_back(flash_attention);
    } else if (peer == arm) {
      throw InvalidArgument("--peer " + peer + " cannot read --kv " + std::string(name_of(kv)) +
                            "; use --peer llama.cpp-flash");
    }
  }
  return arms;
}

void write_result(const BenchOptions& options, const EngineOptions& engine,
                  const DecodeFigures& figures, Json json, ReportOutput& output) {
  json["weight_bytes_per_step"] = figures.weight_bytes;
  json["tokens"] = options.tokens;
  json["repeat"] = options.repeat;
  json["finish"] = "end";
  Report report{"quest bench decode", json, {}, {}, {}};
  report.notes = {bandwidth_line(figures.bandwidth, engine.threads), kDecodeNote};
  report.charts = {decode_chart(figures)};
  report.tables = {decode_table(figures), decode_ratio_table(decode_ratios(figures))};
  json["rows"] = Json::array();
  for (const DecodeBenchRow& row : figures.rows) {
    json["rows"].push_back(decode_fields(row, figures));
  }
  json["ratios"] = decode_ratios(figures);
  json["policy"] = arm_policy_fields(engine);
  output.write(json, report);
}

int bench_decode(const BenchOptions& options) {
  catch_interrupts();
  const std::vector<DecodeBenchPlan> all = plans(options);
  const std::int64_t probe_bytes = checked_probe_bytes(options.probe_mib);
  EngineOptions engine = engine_options(options.common);
  for (const std::int64_t budget : all.front().budgets) policy_for_budget(engine, budget);
  const std::vector<bool> arms = peer_arms(options.peer, engine.kv_type);
  engine.threads = resolved_threads(engine.threads);  // the same number for every engine
  ReportOutput output(options.common, options.html, options.svg);
  const auto model = load_model(options.common);
  for (const DecodeBenchPlan& plan : all) {
    CommonOptions common = options.common;
    common.context = plan.context;
    context_limit(common, model->info());
  }
  DecodeFigures figures;
  figures.weight_bytes = step_weight_bytes(model->info().path);
  Workers workers(engine.threads);
  BandwidthProbe probe(workers, probe_bytes);
  probe.passes();
  std::vector<std::unique_ptr<LlamaPeer>> peers;
  peers.reserve(arms.size());
  for (const bool flash_attention : arms) {
    peers.push_back(std::make_unique<LlamaPeer>(model->info().path, flash_attention));
  }
  for (const DecodeBenchPlan& plan : all) {
    const auto more = run_decode_bench(model, engine, peers, plan);
    if (interrupted()) return kInterruptedStatus;
    figures.rows.insert(figures.rows.end(), more.begin(), more.end());
    probe.passes();
  }
  figures.bandwidth = probe.result();
  write_result(options, engine, figures,
               bench_fields(model->info().path, engine.threads, figures.bandwidth), output);
  return 0;
}

}  // namespace

CLI::App* add_bench_decode(CLI::App& bench, int& status) {
  auto options = std::make_shared<BenchOptions>();
  CLI::App* command = bench.add_subcommand(
      "decode", "Decoded tokens a second of quest, full attention and llama.cpp, in turns");
  command->add_option("--context", options->contexts, "Contexts in tokens, commas between")
      ->capture_default_str();
  command->add_option("--budget", options->budgets, "Budgets in tokens, commas between")
      ->capture_default_str();
  command
      ->add_option(
          "--peer", options->peer,
          "Compare with llama.cpp, one arm of it (llama.cpp-flash, llama.cpp-plain), or none")
      ->capture_default_str();
  command->add_option("--repeat", options->repeat, "Runs of each engine")->capture_default_str();
  command
      ->add_option("--tokens", options->tokens, "Tokens decoded in a run; the first is not timed")
      ->capture_default_str();
  command->add_flag("--table", options->table, "Print a table (the default)");
  command->add_option("--html", options->html, "Write a report with charts to this file as well");
  command->add_option("--svg", options->svg, "Write the chart alone to this file as well");
  add_probe_option(*command, options->probe_mib);
  add_model_options(*command, options->common);
  add_storage_options(*command, options->common);
  add_selection_options(*command, options->common);
  command->callback([options, &status] { status = bench_decode(*options); });
  return command;
}

}  // namespace quest::cli
