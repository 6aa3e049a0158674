// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "quest/tokenizer.h"

namespace quest::cli {

/// Sentences of varied words, the same for the same seed on every machine.
std::string filler_text(std::size_t sentences, std::uint64_t seed);

/// Exactly `count` tokens of it, begin-of-text included where the model wants it.
std::vector<Token> filler_tokens(const Tokenizer& tokenizer, std::int64_t count);

}  // namespace quest::cli
