// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace quest::testing {

/// Writes a copy of a GGUF file whose tensors are all float32, same keys, same values. With such
/// weights no activation is quantised, so two correct engines agree to rounding.
/// Throws std::runtime_error.
void write_widened_gguf(const std::string& from, const std::string& to);

}  // namespace quest::testing
