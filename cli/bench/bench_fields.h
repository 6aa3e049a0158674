// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "bench/synthetic_kv.h"
#include "json_output.h"

namespace quest::cli {

struct ReadBandwidth;

/// What every benchmark's result begins with: the common fields, the versions of the libraries that
/// it ran with, the machine's read bandwidth.
Json bench_fields(const std::string& model, int threads, const ReadBandwidth& bandwidth);
Json shape_fields(const AttentionShape& shape);

/// The selection policy without what each row says for itself.
Json arm_policy_fields(const EngineOptions& engine);

/// "Read bandwidth of 2 threads: 23.4 GB/s …", the line above the tables.
std::string bandwidth_line(const ReadBandwidth& bandwidth, int threads);

/// A number for people, "-" for null: `factor` times the value, `unit` behind it.
std::string number_or_dash(const Json& value, double factor, int decimals, const char* unit = "");

}  // namespace quest::cli
