// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

namespace CLI {
class App;
}

namespace quest::cli {

/// Adds `quest bench profile`: where the time of a decoded token goes, by kind of operation.
void add_profile_bench(CLI::App& bench, int& status);

}  // namespace quest::cli
