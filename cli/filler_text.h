// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace quest::cli {

/// Sentences of varied words, the same for the same seed on every machine.
std::string filler_text(std::size_t sentences, std::uint64_t seed);

}  // namespace quest::cli
