// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace quest::cli {

/// Positive numbers with commas between. Throws InvalidArgument naming the flag; `unit` says what
/// is counted.
std::vector<std::int64_t> parse_list(const char* flag, const std::string& text, const char* unit);

}  // namespace quest::cli
