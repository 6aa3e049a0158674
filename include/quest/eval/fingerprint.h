// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace quest::eval {

/// 16 hexadecimal digits that tell texts apart (64-bit FNV-1a). Not against forgery.
std::string fingerprint(std::string_view bytes);

/// The same for a large file: its size, its first and its last MiB, so that a model of any size
/// takes no time. Throws FileError.
std::string file_fingerprint(const std::string& path);

}  // namespace quest::eval
