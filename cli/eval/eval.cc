// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>

#include "commands.h"
#include "eval/eval_commands.h"

namespace quest::cli {

void add_eval_command(CLI::App& app, int& status) {
  CLI::App* eval = app.add_subcommand("eval", "Measure what sparse attention costs in quality");
  eval->require_subcommand(1);
  add_eval_ppl(*eval, status);
  add_eval_passkey(*eval, status);
  add_eval_longbench(*eval, status);
  add_eval_fidelity(*eval, status);
}

}  // namespace quest::cli
