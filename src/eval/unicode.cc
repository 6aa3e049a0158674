// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "eval/unicode.h"

#include <locale.h>  // NOLINT(modernize-deprecated-headers): newlocale
#include <wctype.h>  // NOLINT(modernize-deprecated-headers): towlower_l is POSIX, not C++

#include <clocale>

namespace quest::eval {
namespace {

constexpr char32_t kStrayByte = 0xDC00;

/// A locale that knows Unicode whatever the user's own is; null where the system has none.
locale_t unicode_locale() {
  static const locale_t locale = [] {
    for (const char* name : {"C.UTF-8", "en_US.UTF-8", "UTF-8"}) {
      if (locale_t found = newlocale(LC_CTYPE_MASK, name, nullptr)) return found;
    }
    return locale_t{};
  }();
  return locale;
}

bool is_ascii(char32_t c) { return c < 0x80; }

}  // namespace

std::u32string decode_utf8(std::string_view text) {
  std::u32string result;
  result.reserve(text.size());
  for (std::size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i]);
    const std::size_t length = lead < 0x80   ? 1
                               : lead < 0xC2 ? 0
                               : lead < 0xE0 ? 2
                               : lead < 0xF0 ? 3
                               : lead < 0xF5 ? 4
                                             : 0;
    char32_t c = length == 1 ? lead : lead & (0xFFU >> (length + 1));
    bool valid = length > 0 && i + length <= text.size();
    for (std::size_t k = 1; valid && k < length; ++k) {
      const auto byte = static_cast<unsigned char>(text[i + k]);
      valid = (byte & 0xC0U) == 0x80U;
      c = c << 6U | (byte & 0x3FU);
    }
    constexpr char32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
    valid = valid && c >= kSmallest[length] && c <= 0x10FFFF && (c < 0xD800 || c > 0xDFFF);
    result.push_back(valid ? c : kStrayByte + lead);
    i += valid ? length : 1;
  }
  return result;
}

std::string encode_utf8(std::u32string_view text) {
  std::string result;
  result.reserve(text.size());
  const auto put = [&result](char32_t byte) { result.push_back(static_cast<char>(byte)); };
  for (const char32_t c : text) {
    if (c >= kStrayByte && c <= kStrayByte + 0xFF) {
      put(c - kStrayByte);
    } else if (c < 0x80) {
      put(c);
    } else if (c < 0x800) {
      put(0xC0U | c >> 6U);
      put(0x80U | (c & 0x3FU));
    } else if (c < 0x10000) {
      put(0xE0U | c >> 12U);
      put(0x80U | (c >> 6U & 0x3FU));
      put(0x80U | (c & 0x3FU));
    } else {
      put(0xF0U | c >> 18U);
      put(0x80U | (c >> 12U & 0x3FU));
      put(0x80U | (c >> 6U & 0x3FU));
      put(0x80U | (c & 0x3FU));
    }
  }
  return result;
}

char32_t to_lower(char32_t c) {
  if (is_ascii(c)) return c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c;
  if (unicode_locale() == locale_t{}) return c;
  return static_cast<char32_t>(towlower_l(static_cast<wint_t>(c), unicode_locale()));
}

bool is_letter_or_digit(char32_t c) {
  if (is_ascii(c))
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
  return unicode_locale() != locale_t{} &&
         iswalnum_l(static_cast<wint_t>(c), unicode_locale()) != 0;
}

bool is_white_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 ||
         c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
         c == 0x205F || c == 0x3000;
}

}  // namespace quest::eval
