// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace quest::cli {

/// Bytes of weights that a decode step of one row reads: every tensor of the GGUF file as stored,
/// but of an embedding table that is not the output head as well only one row. Throws FileError.
std::int64_t step_weight_bytes(const std::string& path);

}  // namespace quest::cli
