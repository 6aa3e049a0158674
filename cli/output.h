// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "quest/error.h"

namespace quest::cli {

/// The reader of our standard output went away: nothing to complain about.
class ClosedPipe : public Error {
 public:
  using Error::Error;
};

/// Where a command's result goes: standard output, as it is produced, or a file, which appears
/// complete or not at all (written beside its final place, then renamed).
class Output {
 public:
  /// path: empty for standard output. A file's folder is tried at once, so that a bad path is
  /// refused before any work. Throws FileError, which names the flag that gave the path.
  explicit Output(std::string path, const std::string& flag = "-o");

  /// Throws Error if standard output takes no more (full device), ClosedPipe if nobody reads it.
  void write(std::string_view text);
  /// Everything has been written: puts the file in place. Throws like `write`, or FileError.
  void finish();

 private:
  std::string path_;
  std::string collected_;
  bool ends_line_ = true;
};

/// A file that is written beside the main result, nothing for an empty path. Throws as Output.
inline std::optional<Output> side_output(const std::string& path, const std::string& flag) {
  if (path.empty()) return std::nullopt;
  return Output(path, flag);
}

/// A large file that must not exist yet, written piece by piece. It appears under its name when it
/// is complete; until then, and if it never is, only a temporary beside it exists, gone with this
/// object.
class NewFile {
 public:
  /// Throws FileError if the file exists, if its folder cannot be written, or if the folder's disk
  /// has not `bytes` and a little more free. `flag` is what named the path.
  NewFile(std::string path, std::int64_t bytes, const std::string& flag);
  ~NewFile();
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  /// Throws FileError.
  void write(std::string_view bytes);
  /// Puts the file in place. Throws FileError if another one took its name in the meantime.
  void finish();

 private:
  std::string path_;
  std::string temporary_;
  int file_ = -1;
};

}  // namespace quest::cli
