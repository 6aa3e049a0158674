// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "bench/html_report.h"

namespace quest::gpu_check {

/// The result of the whole check as charts and tables. `result`: what the program prints as JSON,
/// with "sanitizer", "correctness", "graph", "repeats", "tables" and "targets"; "peers", if there,
/// has the rows of `compare_peers`.
cli::Report make_report(const cli::Json& result);

}  // namespace quest::gpu_check
