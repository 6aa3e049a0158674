// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace quest::cli {

/// All bytes of a file, or of standard input for "-"; any bytes are accepted, valid UTF-8 or not.
/// Throws FileError naming `path`.
std::string read_input(const std::string& path);

/// The text without the line end that closes a text file's last line.
std::string without_final_newline(std::string text);

}  // namespace quest::cli
