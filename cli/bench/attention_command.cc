// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <vector>

#include "bench/attention.h"
#include "bench/attention_flags.h"
#include "bench/attention_report.h"
#include "bench/bench_commands.h"
#include "bench/bench_fields.h"
#include "bench/probe.h"
#include "bench/report_output.h"
#include "bench/workers.h"
#include "interrupt.h"
#include "output.h"
#include "quest/error.h"

namespace quest::cli {
namespace {

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

int bench_attention(const Flags& flags) {
  catch_interrupts();
  const AttentionSetup setup = checked_setup(flags.shared);
  const std::vector<AttentionPlan> all = plans(flags, setup);
  ReportOutput output(flags.shared.common, flags.shared.html);
  Workers workers(setup.engine.threads);
  BandwidthProbe probe(workers, setup.probe_bytes);
  probe.passes();

  std::vector<AttentionRow> rows;
  for (const AttentionPlan& plan : all) {
    const auto more = measure_attention(plan, probe, workers);
    if (interrupted()) return kInterruptedStatus;
    rows.insert(rows.end(), more.begin(), more.end());
  }
  const ReadBandwidth bandwidth = probe.result();
  Json json = bench_fields(setup.model, setup.engine.threads, bandwidth);
  json.update(shape_fields(setup.shape));
  json["repeat"] = flags.shared.repeat;
  Report report{"quest bench attention", json, {}, {}, {}};
  const Json ratios = attention_ratios(rows, bandwidth.best);
  report.notes = {bandwidth_line(bandwidth, setup.engine.threads), kAttentionNote};
  report.tables = {attention_table(rows, bandwidth.best), ratio_table(ratios)};
  report.charts = {time_chart(rows)};
  json["rows"] = Json::array();
  for (const AttentionRow& row : rows)
    json["rows"].push_back(attention_fields(row, bandwidth.best));
  json["ratios"] = ratios;
  json["policy"] = arm_policy_fields(setup.engine);
  output.write(json, report);
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
