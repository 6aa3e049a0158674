// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "quest/eval/calibration.h"
#include "quest/model.h"

namespace quest::cli {

/// What one run of `quest calibrate` measured, so that another can divide anew without measuring.
// The move constructor of nlohmann's json is noexcept; what it asserts is not seen through.
// NOLINTNEXTLINE(bugprone-exception-escape)
struct MeasuredCurves {
  eval::BudgetCurves curves;  ///< of divergences
  nlohmann::json origin;      ///< fields of the profile that say where they come from
};

/// The curves in a profile. Throws FileError or InvalidArgument naming the file and the field: no
/// profile, none with curves of divergences, or those of a model with other layers and heads.
MeasuredCurves read_measured_curves(const std::string& path, const ModelInfo& model);

}  // namespace quest::cli
