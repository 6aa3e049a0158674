// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "bench/list_option.h"

#include <algorithm>
#include <charconv>
#include <system_error>

#include "quest/error.h"

namespace quest::cli {

std::vector<std::int64_t> parse_list(const char* flag, const std::string& text, const char* unit) {
  std::vector<std::int64_t> values;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    std::int64_t value = 0;
    const char* const last = text.data() + end;
    const auto [stop, error] = std::from_chars(text.data() + begin, last, value);
    if (error != std::errc{} || stop != last || value < 1) {
      throw InvalidArgument(std::string(flag) + " '" + text + "' must be numbers of " + unit +
                            " with commas between, such as 2048,8192");
    }
    values.push_back(value);
    begin = end + 1;
  }
  return values;
}

}  // namespace quest::cli
