// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

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
  /// refused before any work. Throws FileError.
  explicit Output(std::string path);

  /// Throws Error if standard output takes no more (full device), ClosedPipe if nobody reads it.
  void write(std::string_view text);
  /// Everything has been written: puts the file in place. Throws like `write`, or FileError.
  void finish();

 private:
  std::string path_;
  std::string collected_;
  bool ends_line_ = true;
};

}  // namespace quest::cli
