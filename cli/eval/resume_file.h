// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>

#include "json_output.h"

namespace quest::cli {

/// Finished items of a long run, one JSON object a line, so that the run can go on after an
/// interruption. The first line says which run they belong to. A last line that was cut off by a
/// crash is dropped.
class ResumeFile {
 public:
  /// Reads the file, or creates it. path: empty for no file, nothing is kept then. Throws
  /// FileError if it cannot be read or written or belongs to another run than `identity`; the file
  /// is then as it was.
  ResumeFile(std::string path, const Json& identity);

  /// The item's result, null if it is not finished. Valid as long as the file.
  const Json* find(const std::string& item) const;
  /// Keeps the result, on disk before it returns. Throws FileError.
  const Json& add(const std::string& item, Json result);

 private:
  void read(const std::string& text, const Json& identity);
  void append(const Json& line);

  const std::string path_;
  std::map<std::string, Json> items_;
};

}  // namespace quest::cli
