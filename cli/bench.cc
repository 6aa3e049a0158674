// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "commands.h"
#include "decode_bench.h"
#include "interrupt.h"
#include "llama_peer.h"
#include "output.h"
#include "profile_bench.h"
#include "quest/error.h"

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
};

std::vector<std::int64_t> parse_list(const char* flag, const std::string& text) {
  std::vector<std::int64_t> values;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    std::int64_t value = 0;
    const char* const last = text.data() + end;
    const auto [stop, error] = std::from_chars(text.data() + begin, last, value);
    if (error != std::errc{} || stop != last || value < 1) {
      throw InvalidArgument(std::string(flag) + " '" + text +
                            "' must be numbers of tokens with commas between, such as 2048,8192");
    }
    values.push_back(value);
    begin = end + 1;
  }
  return values;
}

std::vector<DecodeBenchPlan> plans(const BenchOptions& options) {
  require_at_least("--repeat", options.repeat, 1);
  require_at_least("--tokens", options.tokens, 1);
  if (options.peer != "llama.cpp" && options.peer != "none") {
    throw InvalidArgument("--peer '" + options.peer + "' is unknown; use llama.cpp or none");
  }
  if (options.table && options.common.json) {
    throw InvalidArgument("--table and --json exclude each other; give one");
  }
  std::vector<DecodeBenchPlan> plans;
  for (const std::int64_t context : parse_list("--context", options.contexts)) {
    if (context <= options.tokens) {
      throw InvalidArgument("--context " + std::to_string(context) + " leaves no text before the " +
                            std::to_string(options.tokens) + " decoded --tokens; raise it");
    }
    DecodeBenchPlan plan;
    plan.context = context;
    plan.budgets = parse_list("--budget", options.budgets);
    plan.tokens = options.tokens;
    plan.repeat = options.repeat;
    plans.push_back(std::move(plan));
  }
  return plans;
}

// The common checks, one budget and one context at a time.
EngineOptions checked_engine_options(CommonOptions common,
                                     const std::vector<DecodeBenchPlan>& plans) {
  for (const std::int64_t budget : plans.front().budgets) {
    common.budget = budget;
    engine_options(common);
  }
  return engine_options(common);
}

int bench_decode(const BenchOptions& options) {
  catch_interrupts();
  const std::vector<DecodeBenchPlan> all = plans(options);
  EngineOptions engine = checked_engine_options(options.common, all);
  engine.threads = resolved_threads(engine.threads);  // the same number for every engine
  Output output(options.common.output);
  const auto model = load_model(options.common);
  for (const DecodeBenchPlan& plan : all) {
    CommonOptions common = options.common;
    common.context = plan.context;
    context_limit(common, model->info());
  }
  std::vector<std::unique_ptr<LlamaPeer>> peers;
  if (options.peer != "none") {
    for (const bool flash_attention : {true, false}) {
      peers.push_back(std::make_unique<LlamaPeer>(model->info().path, flash_attention));
    }
  }

  std::vector<DecodeBenchRow> rows;
  for (const DecodeBenchPlan& plan : all) {
    const auto more = run_decode_bench(model, engine, peers, plan);
    rows.insert(rows.end(), more.begin(), more.end());
    if (interrupted()) break;
  }
  if (options.common.json) {
    Json json = common_fields(model->info(), engine.threads);
    json["tokens"] = options.tokens;
    json["repeat"] = options.repeat;
    json["finish"] = interrupted() ? "stopped" : "end";
    json["rows"] = Json::array();
    for (const DecodeBenchRow& row : rows) json["rows"].push_back(row_fields(row));
    json["policy"] = policy_fields(engine);
    json["policy"].erase("budget");  // each row names its own
    json["policy"].erase("dense");
    output.write(dump(json));
  } else {
    output.write(as_table(rows));
  }
  output.finish();
  return interrupted() ? kInterruptedStatus : 0;
}

void add_decode(CLI::App& bench, int& status) {
  auto options = std::make_shared<BenchOptions>();
  CLI::App* command = bench.add_subcommand(
      "decode", "Decoded tokens a second of quest, full attention and llama.cpp, in turns");
  command->add_option("--context", options->contexts, "Contexts in tokens, commas between")
      ->capture_default_str();
  command->add_option("--budget", options->budgets, "Budgets in tokens, commas between")
      ->capture_default_str();
  command->add_option("--peer", options->peer, "Compare with llama.cpp, or none")
      ->capture_default_str();
  command->add_option("--repeat", options->repeat, "Runs of each engine")->capture_default_str();
  command->add_option("--tokens", options->tokens, "Tokens decoded in a run")
      ->capture_default_str();
  command->add_flag("--table", options->table, "Print a table (the default)");
  add_model_options(*command, options->common);
  add_storage_options(*command, options->common);
  add_selection_options(*command, options->common);
  command->callback([options, &status] { status = bench_decode(*options); });
}

}  // namespace

void add_bench_command(CLI::App& app, int& status) {
  CLI::App* bench = app.add_subcommand("bench", "Measure speed");
  bench->require_subcommand(1);
  add_decode(*bench, status);
  add_profile_bench(*bench, status);
}

}  // namespace quest::cli
