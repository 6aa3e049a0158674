// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "bench/attention_flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "bench/probe_option.h"
#include "json_output.h"
#include "list_option.h"
#include "quest/error.h"

namespace quest::cli {
namespace {

constexpr std::int64_t kLongestContext = std::int64_t{1} << 26;

void check_shape(const AttentionShape& shape) {
  constexpr std::int32_t kHeadDims[] = {64, 80, 96, 128, 256};
  if (std::find(std::begin(kHeadDims), std::end(kHeadDims), shape.head_dim) ==
      std::end(kHeadDims)) {
    throw InvalidArgument("--head-dim " + std::to_string(shape.head_dim) +
                          " is not available; use 64, 80, 96, 128 or 256");
  }
  if (shape.q_heads % shape.kv_heads != 0) {
    throw InvalidArgument("--q-heads " + std::to_string(shape.q_heads) +
                          " must be a multiple of --kv-heads " + std::to_string(shape.kv_heads));
  }
}

// The model's shape, what the flags give instead of it, and a name for the two together.
void read_shape(const AttentionFlags& flags, AttentionSetup& setup) {
  AttentionShape& shape = setup.shape;
  require_at_least("--q-heads", flags.q_heads, 0);
  require_at_least("--kv-heads", flags.kv_heads, 0);
  require_at_least("--head-dim", flags.head_dim, 0);
  require_at_most("--q-heads", flags.q_heads, 4096);
  require_at_most("--kv-heads", flags.kv_heads, 4096);
  const bool complete = flags.q_heads > 0 && flags.kv_heads > 0 && flags.head_dim > 0;
  if (!complete) {
    CommonOptions only_shape = flags.common;
    only_shape.reencode = false;
    const auto model = load_model(only_shape);
    setup.model = model->info().path;
    shape.q_heads = model->info().num_q_heads;
    shape.kv_heads = model->info().num_kv_heads;
    shape.head_dim = model->info().head_dim;
  }
  if (flags.q_heads > 0) shape.q_heads = flags.q_heads;
  if (flags.kv_heads > 0) shape.kv_heads = flags.kv_heads;
  if (flags.head_dim > 0) shape.head_dim = flags.head_dim;
  check_shape(shape);
  if (complete) {
    setup.model = "none: " + std::to_string(shape.q_heads) + "/" + std::to_string(shape.kv_heads) +
                  " heads of " + std::to_string(shape.head_dim);
  }
}

}  // namespace

void add_attention_flags(CLI::App& command, AttentionFlags& flags) {
  command.add_option("--context", flags.contexts, "Contexts in tokens, commas between")
      ->capture_default_str();
  command.add_option("--budget", flags.budgets, "Budgets in tokens, commas between")
      ->capture_default_str();
  command.add_option("--q-heads", flags.q_heads, "Query heads (default: the model's)");
  command.add_option("--kv-heads", flags.kv_heads, "KV heads (default: the model's)");
  command.add_option("--head-dim", flags.head_dim, "Head dimension (default: the model's)");
  command.add_option("--repeat", flags.repeat, "Passes of each engine")->capture_default_str();
  add_probe_option(command, flags.probe_mib);
  command.add_flag("--table", flags.table, "Print a table (the default)");
  command.add_option("--html", flags.html, "Write a report with charts to this file as well");
  add_model_options(command, flags.common);
  add_page_size_option(command, flags.common);
  command.add_option("--kv", flags.common.kv, "Type of cached keys and values")
      ->capture_default_str();
  add_summary_option(command, flags.common);
  add_selection_options(command, flags.common);
}

AttentionSetup checked_setup(const AttentionFlags& flags) {
  AttentionSetup setup;
  require_at_least("--repeat", flags.repeat, 1);
  setup.probe_bytes = checked_probe_bytes(flags.probe_mib);
  if (flags.table && flags.common.json) {
    throw InvalidArgument("--table and --json exclude each other; give one");
  }
  setup.contexts = parse_list("--context", flags.contexts, "tokens");
  setup.budgets = parse_list("--budget", flags.budgets, "tokens");
  for (const std::int64_t context : setup.contexts) {
    require_at_most("--context", context, kLongestContext);
  }
  CommonOptions common = flags.common;
  if (!common.profile.empty() && common.profile != "none") {
    throw InvalidArgument(
        "--profile has a budget for every head of a model, and one layer is measured "
        "here; leave it out");
  }
  // All measured layers are alike; a model's first layers may be dense, these are not among them.
  if (!common.dense_layers) common.dense_layers = 0;
  // The crossover is what is measured here.
  if (!common.crossover) common.crossover = 1.0F;
  setup.engine = engine_options(common);
  for (const std::int64_t budget : setup.budgets) policy_for_budget(setup.engine, budget);
  setup.engine.threads = resolved_threads(setup.engine.threads);
  setup.shape.page_size = setup.engine.page_size;
  setup.shape.kv = setup.engine.kv_type;
  setup.shape.summary = setup.engine.summary_type;
  read_shape(flags, setup);
  return setup;
}

}  // namespace quest::cli
