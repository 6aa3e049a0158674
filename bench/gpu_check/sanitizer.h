// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "json_output.h"

namespace quest::gpu_check {

/// Where compute-sanitizer is: in CUDA_HOME, in PATH, or in /usr/local/cuda; empty if nowhere.
std::string find_sanitizer();

/// Runs `program --quick --device N` under compute-sanitizer's memcheck, racecheck and synccheck,
/// each for at most so many seconds: {"failed", "runs"}. A run has "tool", "result" ("passed",
/// "failed" or "unfinished") and, unless it passed, "output", its last lines. Without a sanitizer
/// there are no runs, and "skipped" says why.
cli::Json check_sanitizer(const std::string& sanitizer, const std::string& program, int device,
                          int seconds);

}  // namespace quest::gpu_check
