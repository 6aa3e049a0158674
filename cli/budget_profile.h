// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "quest/kv_type.h"
#include "quest/policy.h"

namespace quest::cli {

/// What `quest calibrate` found for one model, and how pages are to be ranked with it (SPEC S9.5).
struct BudgetProfile {
  std::string model;       ///< fingerprint of the model's file
  SelectionPolicy policy;  ///< budget, budget_table and calibrated tables filled in
  std::int32_t page_size = 16;
  SummaryType summary_type = SummaryType::kQ8;
  std::string source;  ///< file, or "packaged", for messages
};

/// Format number of the files that this program writes and reads.
inline constexpr int kProfileFormat = 2;

/// The profile in a file. Throws FileError or InvalidArgument naming the file and the field.
BudgetProfile read_profile(const std::string& path);
/// Throws InvalidArgument if the profile belongs to another model than the file at `model_path`.
void check_model(const BudgetProfile& profile, const std::string& model_path);
/// The profile that comes with the program for this model, if there is one.
std::optional<BudgetProfile> packaged_profile(const std::string& model_path);

}  // namespace quest::cli
