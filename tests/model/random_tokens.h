// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "quest/tokenizer.h"

namespace quest::testing {

/// Tokens drawn evenly from the vocabulary, special ones (the first three) left out.
inline std::vector<Token> random_tokens(std::int32_t vocabulary, std::size_t count,
                                        std::uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_int_distribution<Token> token(3, vocabulary - 1);
  std::vector<Token> tokens(count);
  for (Token& t : tokens) t = token(random);
  return tokens;
}

}  // namespace quest::testing
