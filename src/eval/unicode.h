// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace quest::eval {

// Text as code points, with the character classes that Python's str and re use, as far as the
// system's C library knows them.

/// Bytes that are no UTF-8 become one code point each, U+DC00 plus the byte, and back.
std::u32string decode_utf8(std::string_view text);
std::string encode_utf8(std::u32string_view text);

char32_t to_lower(char32_t c);
bool is_letter_or_digit(char32_t c);
/// What str.split() without arguments splits at.
bool is_white_space(char32_t c);

}  // namespace quest::eval
