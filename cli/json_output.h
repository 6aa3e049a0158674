// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "common_options.h"
#include "quest/engine.h"

namespace quest::cli {

/// Fields keep the order in which they were written.
using Json = nlohmann::ordered_json;

/// Name of this machine's processor as the system gives it, or "unknown".
std::string cpu_name();

/// Number of threads that a request of 0 ("all cores") means.
int resolved_threads(int threads);

/// The fields that every result carries: version, commit, compiler, cpu, threads, model.
Json common_fields(const ModelInfo& info, int threads);

/// The fields of results whose backend can be chosen: the common ones and `device`, where the
/// engine's KV cache and attention are ("cpu", or the GPU's name).
Json engine_fields(const Engine& engine);

/// What the engine was told to read.
Json policy_fields(const EngineOptions& options);

/// bytes_read by kind: k, v, summaries; with certificates also probes, keys read to certify.
Json bytes_read_fields(const AttentionCounters& counters);

/// Seconds by stage: append, summarise, score, select, attend, other.
Json seconds_fields(const EngineCounters& counters);

/// `amount` / `count`, or null where there is nothing to divide by.
Json ratio_or_null(double amount, double count);

/// The object as text that is always valid JSON and UTF-8: other bytes become U+FFFD.
std::string dump(const Json& json);

}  // namespace quest::cli
