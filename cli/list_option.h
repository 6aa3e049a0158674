// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace quest::cli {

/// Positive numbers with commas between. Throws InvalidArgument naming the flag; `unit` says what
/// is counted.
std::vector<std::int64_t> parse_list(const char* flag, const std::string& text, const char* unit);
/// Numbers from 0 to 1 with commas between. Throws InvalidArgument naming the flag.
std::vector<double> parse_shares(const char* flag, const std::string& text);
/// Words with commas between, none of them empty. Throws InvalidArgument naming the flag.
std::vector<std::string> parse_words(const char* flag, const std::string& text);

}  // namespace quest::cli
