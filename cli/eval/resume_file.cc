// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "eval/resume_file.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

#include "input.h"
#include "quest/error.h"

namespace quest::cli {
namespace {

std::string one_line(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

/// Name of the first field in which two runs differ.
std::string difference(const Json& theirs, const Json& ours) {
  for (const auto& [name, value] : ours.items()) {
    if (!theirs.contains(name)) return name + " is missing there";
    if (theirs.at(name) != value) {
      return name + " is " + theirs.at(name).dump() + " there and " + value.dump() + " here";
    }
  }
  return "it has more fields";
}

}  // namespace

ResumeFile::ResumeFile(std::string path, const Json& identity) : path_(std::move(path)) {
  if (path_.empty()) return;
  if (std::filesystem::exists(path_)) {
    const std::string text = read_input(path_);
    const std::size_t whole = text.rfind('\n') == std::string::npos ? 0 : text.rfind('\n') + 1;
    if (whole > 0) {
      read(text.substr(0, whole), identity);
      if (whole < text.size()) std::filesystem::resize_file(path_, whole);
      return;
    }
    if (!text.empty()) {
      throw FileError("'" + path_ + "' is no file of finished items; name another for --resume");
    }
  }
  append(identity);
}

void ResumeFile::read(const std::string& text, const Json& identity) {
  for (std::size_t begin = 0, number = 1; begin < text.size(); ++number) {
    const std::size_t end = text.find('\n', begin);
    Json line = Json::parse(text.begin() + static_cast<std::ptrdiff_t>(begin),
                            text.begin() + static_cast<std::ptrdiff_t>(end), nullptr, false);
    begin = end + 1;
    if (number == 1) {
      if (!line.is_object() || !line.contains("eval")) {
        throw FileError("'" + path_ + "' is no file of finished items; name another for --resume");
      }
      if (line == identity) continue;
      throw FileError("'" + path_ + "' holds items of another run: " + difference(line, identity) +
                      "; name another file for --resume");
    }
    if (!line.is_object() || !line.contains("item") || !line.contains("result")) {
      throw FileError("'" + path_ + "' line " + std::to_string(number) +
                      " is no finished item; remove that line or name another file for --resume");
    }
    items_[line.at("item").get<std::string>()] = std::move(line.at("result"));
  }
}

void ResumeFile::append(const Json& line) {
  const std::string text = one_line(line);
  std::FILE* file = std::fopen(path_.c_str(), "ab");
  bool written = file != nullptr && std::fwrite(text.data(), 1, text.size(), file) == text.size();
  if (file != nullptr) written = std::fclose(file) == 0 && written;
  if (!written) throw FileError("cannot write '" + path_ + "': " + std::strerror(errno));
}

const Json* ResumeFile::find(const std::string& item) const {
  const auto found = items_.find(item);
  return found == items_.end() ? nullptr : &found->second;
}

const Json& ResumeFile::add(const std::string& item, Json result) {
  if (!path_.empty()) append({{"item", item}, {"result", result}});
  return items_[item] = std::move(result);
}

}  // namespace quest::cli
