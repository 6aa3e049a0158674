// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "quest/eval/longbench.h"

namespace quest::cli {

/// Samples of a JSON-lines file (docs/evaluation.md): id, dataset, metric, context, query, answers
/// and, optional, max_tokens. Throws FileError naming file, line and field.
std::vector<eval::LongBenchSample> read_longbench(const std::string& path);

/// A file of LongBench's own (input, context, answers, dataset, _id) as text of the format above,
/// with LongBench's prompts: an object of data sets and their prompts, {context} and {input} in
/// them. Throws FileError naming file, line and field.
std::string convert_longbench(const std::string& path, const std::string& prompts_path);

}  // namespace quest::cli
