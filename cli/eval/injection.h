// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "eval/eval_run.h"
#include "quest/eval/baseline.h"

namespace quest::cli {

/// Layers of --inject: "all" (no value) or FROM-TO, several with commas between; none for an empty
/// text. Throws InvalidArgument.
std::vector<std::optional<eval::LayerRange>> parse_injection(const std::string& text);

/// Behind every budget's own arm, for each range, one that has the evidence's pages forced into
/// those layers. Throws InvalidArgument for layers that the model does not have.
void add_injection_arms(const std::vector<std::optional<eval::LayerRange>>& ranges,
                        const ModelInfo& info, EvalSetup& setup);

}  // namespace quest::cli
