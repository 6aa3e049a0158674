// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace CLI {
class App;
}

namespace quest::cli {

/// --probe-mib, of every benchmark that measures the read bandwidth.
void add_probe_option(CLI::App& command, std::int64_t& probe_mib);

/// Bytes of the probe's buffer; 0 MiB: what suits the caches. Throws InvalidArgument naming the
/// flag.
std::int64_t checked_probe_bytes(std::int64_t probe_mib);

}  // namespace quest::cli
