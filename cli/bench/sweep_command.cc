// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "bench/attention_flags.h"
#include "bench/attention_report.h"
#include "bench/bench_commands.h"
#include "bench/bench_fields.h"
#include "bench/probe.h"
#include "bench/report_output.h"
#include "bench/sweep.h"
#include "bench/workers.h"
#include "interrupt.h"
#include "list_option.h"
#include "quest/error.h"

namespace quest::cli {
namespace {

struct Flags {
  AttentionFlags shared;
  std::string page_sizes = "8,16,32,64";
  std::string pages = "64,128,256,512";
  std::int64_t grid_context = 0;  // the longest of --context
  std::string batches = "1,2,4,8,16";
  std::int64_t batch_context = 4096;
};

void require_pages_left_out(const char* flag, std::int64_t context, std::int64_t budget,
                            const AttentionShape& shape) {
  AttentionShape at = shape;
  at.context = context;
  if (leaves_pages_out(budget, at)) return;
  throw InvalidArgument(std::string(flag) + " " + std::to_string(context) +
                        " is covered by a budget of " + std::to_string(budget) +
                        " tokens; raise it, or lower the budget");
}

std::vector<std::int64_t> checked_page_sizes(const Flags& flags) {
  std::vector<std::int64_t> sizes = parse_list("--page-sizes", flags.page_sizes, "tokens");
  for (const std::int64_t size : sizes) {
    if (size == 8 || size == 16 || size == 32 || size == 64) continue;
    throw InvalidArgument("--page-sizes " + std::to_string(size) +
                          " is not available; use 8, 16, 32 or 64");
  }
  return sizes;
}

SweepPlan plan_of(const Flags& flags, const AttentionSetup& setup) {
  require_at_least("--grid-context", flags.grid_context, 0);
  require_at_least("--batch-context", flags.batch_context, 1);
  SweepPlan plan;
  plan.shape = setup.shape;
  plan.policy = setup.engine.policy;
  plan.repeat = flags.shared.repeat;
  plan.contexts = setup.contexts;
  plan.budgets = setup.budgets;
  std::sort(plan.contexts.begin(), plan.contexts.end());
  plan.grid_context = flags.grid_context > 0 ? flags.grid_context : plan.contexts.back();
  plan.page_sizes = checked_page_sizes(flags);
  plan.pages = parse_list("--pages", flags.pages, "pages");
  plan.batch_context = flags.batch_context;
  plan.batches = parse_list("--batch", flags.batches, "sequences");
  for (const std::int64_t batch : plan.batches) {
    if (batch <= 1024) continue;
    throw InvalidArgument("--batch " + std::to_string(batch) + " must be at most 1024");
  }
  for (const std::int64_t budget : plan.budgets) {
    require_pages_left_out("--context", plan.contexts.back(), budget, plan.shape);
  }
  require_pages_left_out("--batch-context", plan.batch_context, plan.budgets.front(), plan.shape);
  return plan;
}

Json grid_fields(const SweepResult& result, double read_bandwidth) {
  Json grid = Json::array();
  for (const AttentionRow& row : result.grid) {
    Json fields = attention_fields(row, read_bandwidth);
    if (row.budget) fields["pages"] = *row.budget / row.shape.page_size;
    grid.push_back(std::move(fields));
  }
  return grid;
}

Json crossover_fields(const std::vector<Crossover>& crossovers) {
  Json all = Json::array();
  for (const Crossover& crossover : crossovers) {
    Json json = {{"budget", crossover.budget},
                 {"crossover_tokens", nullptr},
                 {"length_per_budget", nullptr},
                 {"trials", Json::array()}};
    if (crossover.tokens) {
      json["crossover_tokens"] = *crossover.tokens;
      json["length_per_budget"] =
          static_cast<double>(*crossover.tokens) / static_cast<double>(crossover.budget);
    }
    for (const Crossover::Trial& trial : crossover.trials) {
      json["trials"].push_back({{"context", trial.context},
                                {"quest_seconds", trial.quest_seconds},
                                {"dense_seconds", trial.dense_seconds}});
    }
    all.push_back(std::move(json));
  }
  return all;
}

// Page size by row, selected pages by column: microseconds, and how much faster than dense.
Table grid_table(const SweepPlan& plan, const SweepResult& result, double read_bandwidth) {
  Table table;
  table.title = "us/layer by page size and selected pages at a context of " +
                std::to_string(plan.grid_context) + " (times faster than dense)";
  table.headers = {"page size", "dense", "dense at bandwidth %"};
  for (const std::int64_t pages : plan.pages) table.headers.push_back(std::to_string(pages));
  for (const std::int64_t page_size : plan.page_sizes) {
    std::vector<std::string> cells(table.headers.size(), "-");
    cells[0] = std::to_string(page_size);
    double dense = 0;
    for (const AttentionRow& row : result.grid) {
      if (row.shape.page_size != page_size || row.budget) continue;
      dense = row.seconds.median;
      cells[1] = fixed(dense * 1e6, 1);
      cells[2] = fixed(100 * row.bytes / dense / read_bandwidth, 1);
    }
    for (const AttentionRow& row : result.grid) {
      if (row.shape.page_size != page_size || !row.budget) continue;
      const auto column = std::find(plan.pages.begin(), plan.pages.end(), *row.budget / page_size);
      cells[static_cast<std::size_t>(3 + (column - plan.pages.begin()))] =
          fixed(row.seconds.median * 1e6, 1) + " (" + fixed(dense / row.seconds.median, 1) + "x)";
    }
    table.rows.push_back(std::move(cells));
  }
  return table;
}

Table crossover_table(const std::vector<Crossover>& crossovers) {
  Table table;
  table.title = "Shortest length at which quest is faster than dense (fastest passes)";
  table.headers = {"budget", "crossover", "length / budget", "lengths tried"};
  for (const Crossover& crossover : crossovers) {
    std::vector<std::string> cells = {std::to_string(crossover.budget), "-", "-",
                                      std::to_string(crossover.trials.size())};
    if (crossover.tokens) {
      cells[1] = std::to_string(*crossover.tokens);
      cells[2] =
          fixed(static_cast<double>(*crossover.tokens) / static_cast<double>(crossover.budget), 2);
    }
    table.rows.push_back(std::move(cells));
  }
  return table;
}

Table titled(Table table, const std::string& title) {
  table.title = title;
  return table;
}

void fill_report(Report& report, const SweepPlan& plan, const SweepResult& result,
                 double read_bandwidth) {
  for (const std::int64_t budget : plan.budgets) {
    report.charts.push_back(stage_chart(result.lengths, budget));
  }
  report.tables = {
      titled(attention_table(result.lengths, read_bandwidth), "By length"),
      ratio_table(attention_ratios(result.lengths, read_bandwidth)),
      grid_table(plan, result, read_bandwidth),
      titled(attention_table(result.batches, read_bandwidth), "By batch"),
      ratio_table(attention_ratios(result.batches, read_bandwidth)),
      crossover_table(result.crossovers),
  };
}

int bench_sweep(const Flags& flags) {
  catch_interrupts();
  const AttentionSetup setup = checked_setup(flags.shared);
  const SweepPlan plan = plan_of(flags, setup);
  ReportOutput output(flags.shared.common, flags.shared.html);
  Workers workers(setup.engine.threads);
  BandwidthProbe probe(workers, setup.probe_bytes);
  probe.passes();
  const SweepResult result = run_sweep(plan, probe, workers);
  if (interrupted()) return kInterruptedStatus;

  const ReadBandwidth bandwidth = probe.result();
  Json json = bench_fields(setup.model, setup.engine.threads, bandwidth);
  json.update(shape_fields(setup.shape));
  json["repeat"] = plan.repeat;
  Report report{"quest bench sweep", json, {}, {}, {}};
  report.notes = {bandwidth_line(bandwidth, setup.engine.threads), kAttentionNote};
  fill_report(report, plan, result, bandwidth.best);

  const auto rows = [&](const std::vector<AttentionRow>& from) {
    Json array = Json::array();
    for (const AttentionRow& row : from) array.push_back(attention_fields(row, bandwidth.best));
    return array;
  };
  const Json crossovers = crossover_fields(result.crossovers);
  json["rows"] = rows(result.lengths);
  json["ratios"] = attention_ratios(result.lengths, bandwidth.best);
  json["grid"] = grid_fields(result, bandwidth.best);
  json["grid_ratios"] = attention_ratios(result.grid, bandwidth.best);
  json["batches"] = rows(result.batches);
  json["batch_ratios"] = attention_ratios(result.batches, bandwidth.best);
  json["crossover_tokens"] = crossovers.at(0).at("crossover_tokens");
  json["crossovers"] = crossovers;
  json["policy"] = arm_policy_fields(setup.engine);
  output.write(json, report);
  return 0;
}

}  // namespace

CLI::App* add_bench_sweep(CLI::App& bench, int& status) {
  auto flags = std::make_shared<Flags>();
  flags->shared.contexts = "2048,4096,8192,16384,32768";
  flags->shared.budgets = "512,2048";
  CLI::App* command = bench.add_subcommand(
      "sweep", "One layer of attention by length, page size, budget and batch; the crossover");
  add_attention_flags(*command, flags->shared);
  command->add_option("--page-sizes", flags->page_sizes, "Page sizes of the grid")
      ->capture_default_str();
  command->add_option("--pages", flags->pages, "Selected pages of the grid")->capture_default_str();
  command->add_option("--grid-context", flags->grid_context,
                      "Context of the grid (default: the longest of --context)");
  command->add_option("--batch", flags->batches, "Sequences in a step")->capture_default_str();
  command->add_option("--batch-context", flags->batch_context, "Context of each of them")
      ->capture_default_str();
  command->callback([flags, &status] { status = bench_sweep(*flags); });
  return command;
}

}  // namespace quest::cli
