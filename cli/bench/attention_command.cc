// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <vector>

#include "bench/attention.h"
#include "bench/attention_flags.h"
#include "bench/bench_commands.h"
#include "bench/probe.h"
#include "bench/table.h"
#include "bench/workers.h"
#include "interrupt.h"
#include "output.h"
#include "quest/error.h"

namespace quest::cli {
namespace {

constexpr int kProbePasses = 7;

struct Flags {
  AttentionFlags shared;
  std::int32_t batch = 1;
  std::string peer = "llama.cpp";
};

std::vector<AttentionPlan> plans(const Flags& flags, const AttentionSetup& setup) {
  require_at_least("--batch", flags.batch, 1);
  if (flags.peer != "llama.cpp" && flags.peer != "none") {
    throw InvalidArgument("--peer '" + flags.peer + "' is unknown; use llama.cpp or none");
  }
  std::vector<AttentionPlan> plans;
  for (const std::int64_t context : setup.contexts) {
    AttentionPlan plan;
    plan.shape = setup.shape;
    plan.shape.context = context;
    plan.shape.batch = flags.batch;
    plan.shape.layers = measured_layers(plan.shape);
    plan.policy = setup.engine.policy;
    plan.peer = flags.peer != "none";
    plan.repeat = flags.shared.repeat;
    for (const std::int64_t budget : setup.budgets) {
      if (leaves_pages_out(budget, plan.shape)) plan.budgets.push_back(budget);
    }
    if (plan.budgets.empty()) {
      throw InvalidArgument("--context " + std::to_string(context) +
                            " is covered by every --budget; raise it, or lower a budget");
    }
    plans.push_back(std::move(plan));
  }
  return plans;
}

Table as_table(const std::vector<AttentionRow>& rows, double read_bandwidth) {
  Table table;
  table.headers = {"engine", "context", "batch",    "us/layer", "min..max",    "score",
                   "select", "attend",  "MB/layer", "GB/s",     "bandwidth %", "best %"};
  const auto us = [](double seconds) { return fixed(seconds * 1e6, 1); };
  for (const AttentionRow& row : rows) {
    const double rate = row.bytes / row.seconds.median;
    const auto stage = [&](double StageSeconds::*member) {
      return row.stages ? us(*row.stages.*member) : std::string("-");
    };
    table.rows.push_back(
        {row.name(), std::to_string(row.shape.context), std::to_string(row.shape.batch),
         us(row.seconds.median), us(row.seconds.min) + ".." + us(row.seconds.max),
         stage(&StageSeconds::score), stage(&StageSeconds::select), stage(&StageSeconds::attend),
         fixed(row.bytes * 1e-6, 3), fixed(rate * 1e-9, 1), fixed(100 * rate / read_bandwidth, 1),
         fixed(100 * row.bytes / row.seconds.min / read_bandwidth, 1)});
  }
  return table;
}

Table ratio_table(const Json& ratios) {
  Table table;
  table.headers = {"quest", "context", "over dense", "dense at bandwidth %", "over llama.cpp"};
  const auto number = [](const Json& value, double factor, const char* unit) {
    return value.is_null() ? std::string("-") : fixed(factor * value.get<double>(), 2) + unit;
  };
  for (const Json& ratio : ratios) {
    table.rows.push_back({"budget " + ratio["budget"].dump(), ratio["context"].dump(),
                          number(ratio["speedup_over_dense"], 1, "x"),
                          number(ratio["dense_bandwidth_share"], 100, ""),
                          number(ratio["speedup_over_llama_cpp"], 1, "x")});
  }
  return table;
}

int bench_attention(const Flags& flags) {
  catch_interrupts();
  Output output(flags.shared.common.output);
  const AttentionSetup setup = checked_setup(flags.shared);
  const std::vector<AttentionPlan> all = plans(flags, setup);
  Workers workers(setup.engine.threads);
  BandwidthProbe probe(workers, setup.probe_bytes);
  const ReadBandwidth bandwidth = probe.measure(kProbePasses);

  std::vector<AttentionRow> rows;
  for (const AttentionPlan& plan : all) {
    const auto more = measure_attention(plan, probe, workers);
    rows.insert(rows.end(), more.begin(), more.end());
    if (interrupted()) return kInterruptedStatus;
  }
  const Json ratios = attention_ratios(rows, bandwidth.best);
  if (flags.shared.common.json) {
    Json json = bench_fields(setup, bandwidth);
    json["repeat"] = flags.shared.repeat;
    json["rows"] = Json::array();
    for (const AttentionRow& row : rows)
      json["rows"].push_back(attention_fields(row, bandwidth.best));
    json["ratios"] = ratios;
    json["policy"] = policy_fields(setup.engine);
    json["policy"].erase("budget");  // each row names its own
    json["policy"].erase("dense");
    output.write(dump(json));
  } else {
    output.write(bandwidth_line(bandwidth, setup.engine.threads) + "\n\n" +
                 as_text(as_table(rows, bandwidth.best)) + "\n" + as_text(ratio_table(ratios)));
  }
  output.finish();
  return 0;
}

}  // namespace

CLI::App* add_bench_attention(CLI::App& bench, int& status) {
  auto flags = std::make_shared<Flags>();
  flags->shared.contexts = "8192,32768";
  flags->shared.budgets = "512,2048";
  CLI::App* command = bench.add_subcommand(
      "attention", "One layer of attention at decode: quest, full attention and llama.cpp");
  add_attention_flags(*command, flags->shared);
  command->add_option("--batch", flags->batch, "Sequences in the step")->capture_default_str();
  command->add_option("--peer", flags->peer, "Compare with llama.cpp, or none")
      ->capture_default_str();
  command->callback([flags, &status] { status = bench_attention(*flags); });
  return command;
}

}  // namespace quest::cli
