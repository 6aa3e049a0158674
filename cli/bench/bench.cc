// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>

#include "bench/bench_commands.h"
#include "commands.h"

namespace quest::cli {

void add_bench_command(CLI::App& app, int& status) {
  CLI::App* bench = app.add_subcommand("bench", "Measure speed");
  bench->require_subcommand(1);
  add_bench_attention(*bench, status);
  add_bench_decode(*bench, status);
  add_bench_sweep(*bench, status);
}

}  // namespace quest::cli
