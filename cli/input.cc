// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "input.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>

#include "quest/error.h"

namespace quest::cli {

std::string read_input(const std::string& path) {
  const bool standard = path == "-";
  std::error_code ignored;
  if (!standard && std::filesystem::is_directory(path, ignored)) {
    throw FileError("'" + path + "' is a directory; name a text file, or - for standard input");
  }
  const auto close = [](std::FILE* file) { std::fclose(file); };
  std::unique_ptr<std::FILE, decltype(close)> owned(
      standard ? nullptr : std::fopen(path.c_str(), "rb"), close);
  std::FILE* file = standard ? stdin : owned.get();
  if (file == nullptr) {
    throw FileError("cannot read '" + path + "': " + std::strerror(errno) + "; check the path");
  }
  std::string text;
  char buffer[1 << 16];
  std::size_t count = 0;
  while ((count = std::fread(buffer, 1, sizeof buffer, file)) > 0) text.append(buffer, count);
  if (std::ferror(file) != 0) {
    throw FileError("cannot read '" + path + "': " + std::strerror(errno));
  }
  return text;
}

std::string without_final_newline(std::string text) {
  if (text.ends_with('\n')) text.pop_back();
  if (text.ends_with('\r')) text.pop_back();
  return text;
}

}  // namespace quest::cli
