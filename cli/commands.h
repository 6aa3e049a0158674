// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

namespace CLI {
class App;
}

namespace quest::cli {

// Each adds one subcommand to the program. When the user asks for it, CLI11 runs it inside
// App::parse and `status` receives the exit status; errors leave as exceptions.
void add_run_command(CLI::App& app, int& status);
void add_ask_command(CLI::App& app, int& status);
void add_chat_command(CLI::App& app, int& status);
void add_inspect_command(CLI::App& app, int& status);
void add_bench_command(CLI::App& app, int& status);
void add_eval_command(CLI::App& app, int& status);
void add_calibrate_command(CLI::App& app, int& status);

}  // namespace quest::cli
