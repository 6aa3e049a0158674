// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "bench/table.h"

#include <algorithm>
#include <cstdio>

namespace quest::cli {
namespace {

// Characters on the screen: UTF-8's later bytes take no room.
std::size_t width_of(const std::string& text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

}  // namespace

std::string as_text(const Table& table) {
  std::vector<std::size_t> widths;
  for (std::size_t i = 0; i < table.headers.size(); ++i) {
    widths.push_back(width_of(table.headers[i]));
    for (const auto& row : table.rows) widths[i] = std::max(widths[i], width_of(row[i]));
  }
  std::string text = table.title.empty() ? "" : table.title + "\n";
  const auto add = [&](const std::vector<std::string>& cells) {
    std::string line;
    for (std::size_t i = 0; i < cells.size(); ++i) {
      const std::string space(widths[i] - width_of(cells[i]), ' ');
      line += (i == 0 ? "" : "  ") + (i == 0 ? cells[i] + space : space + cells[i]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  };
  add(table.headers);
  for (const auto& row : table.rows) add(row);
  return text;
}

std::string fixed(double value, int decimals) {
  char text[48];
  std::snprintf(text, sizeof text, "%.*f", decimals, value);
  return text;
}

}  // namespace quest::cli
