// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

namespace CLI {
class App;
}

namespace quest::cli {

// Each adds one subcommand of `quest bench` and returns it; see commands.h.
CLI::App* add_bench_attention(CLI::App& bench, int& status);
CLI::App* add_bench_decode(CLI::App& bench, int& status);
CLI::App* add_bench_profile(CLI::App& bench, int& status);
CLI::App* add_bench_sweep(CLI::App& bench, int& status);

}  // namespace quest::cli
