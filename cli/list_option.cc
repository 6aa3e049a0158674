// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "list_option.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>

#include "quest/error.h"

namespace quest::cli {

namespace {

/// The value of a part, nothing if it is no number.
template <class T>
std::optional<T> number_in(std::string_view part) {
  T value{};
  const auto [stop, error] = std::from_chars(part.data(), part.data() + part.size(), value);
  if (error != std::errc{} || stop != part.data() + part.size()) return std::nullopt;
  return value;
}

[[noreturn]] void refuse(const char* flag, const std::string& text, const std::string& wanted) {
  throw InvalidArgument(std::string(flag) + " '" + text + "' must be " + wanted);
}

std::vector<std::string_view> parts_of(std::string_view text) {
  std::vector<std::string_view> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

}  // namespace

std::vector<std::int64_t> parse_list(const char* flag, const std::string& text, const char* unit) {
  std::vector<std::int64_t> values;
  for (const std::string_view part : parts_of(text)) {
    const auto value = number_in<std::int64_t>(part);
    if (!value || *value < 1) {
      refuse(flag, text,
             "numbers of " + std::string(unit) + " with commas between, such as 2048,8192");
    }
    values.push_back(*value);
  }
  return values;
}

std::vector<double> parse_shares(const char* flag, const std::string& text) {
  std::vector<double> values;
  for (const std::string_view part : parts_of(text)) {
    const auto value = number_in<double>(part);
    if (!value || !(*value >= 0 && *value <= 1)) {
      refuse(flag, text, "numbers from 0 to 1 with commas between, such as 0.1,0.5,0.9");
    }
    values.push_back(*value);
  }
  return values;
}

std::vector<std::string> parse_words(const char* flag, const std::string& text) {
  std::vector<std::string> values;
  for (const std::string_view part : parts_of(text)) {
    if (part.empty()) refuse(flag, text, "words with commas between");
    values.emplace_back(part);
  }
  return values;
}

}  // namespace quest::cli
