// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "bench/probe_option.h"

#include <CLI/CLI.hpp>

#include "bench/probe.h"
#include "common_options.h"

namespace quest::cli {

void add_probe_option(CLI::App& command, std::int64_t& probe_mib) {
  command.add_option("--probe-mib", probe_mib,
                     "Buffer that measures the read bandwidth and sweeps the caches between "
                     "measurements (default: four times the last-level cache)");
}

std::int64_t checked_probe_bytes(std::int64_t probe_mib) {
  require_at_least("--probe-mib", probe_mib, 0);
  require_at_most("--probe-mib", probe_mib, 1 << 20);
  return probe_mib > 0 ? probe_mib << 20 : BandwidthProbe::default_bytes();
}

}  // namespace quest::cli
