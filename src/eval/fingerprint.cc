// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "quest/eval/fingerprint.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <fstream>

#include "quest/error.h"

namespace quest::eval {

std::string fingerprint(std::string_view bytes) {
  std::uint64_t hash = 0xCBF29CE484222325U;
  for (const char byte : bytes) {
    hash ^= static_cast<unsigned char>(byte);
    hash *= 0x100000001B3U;
  }
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(hash));
  return text;
}

std::string file_fingerprint(const std::string& path) {
  constexpr std::streamoff kPart = 1 << 20;
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  const std::streamoff size = file ? static_cast<std::streamoff>(file.tellg()) : -1;
  if (size < 0) throw FileError("cannot read '" + path + "'; check the path");
  std::string bytes = std::to_string(size) + ":";
  for (const std::streamoff begin :
       {std::streamoff{0}, std::max<std::streamoff>(0, size - kPart)}) {
    std::string part(static_cast<std::size_t>(std::min(kPart, size)), '\0');
    file.seekg(begin);
    file.read(part.data(), static_cast<std::streamsize>(part.size()));
    if (!file) throw FileError("cannot read '" + path + "'");
    bytes += part;
  }
  return fingerprint(bytes);
}

}  // namespace quest::eval
