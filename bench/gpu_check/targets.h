// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "json_output.h"

namespace quest::gpu_check {

/// What the project promises of a GPU, beside what the rows of the tables say, at 32 k tokens and
/// head_dim 128: an array of {"target", "wanted", "at_least" (else at most), "got", "met"}; "got"
/// and "met" are null where the rows are not there.
cli::Json judge_targets(const cli::Json& rows);

}  // namespace quest::gpu_check
