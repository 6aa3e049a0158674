// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

namespace CLI {
class App;
}

namespace quest::cli {

// The subcommands of `quest eval`; see commands.h.
void add_eval_ppl(CLI::App& eval, int& status);
void add_eval_passkey(CLI::App& eval, int& status);
void add_eval_longbench(CLI::App& eval, int& status);
void add_eval_fidelity(CLI::App& eval, int& status);

}  // namespace quest::cli
