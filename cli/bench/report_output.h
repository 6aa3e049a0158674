// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "bench/html_report.h"
#include "common_options.h"
#include "output.h"

namespace quest::cli {

/// Where a benchmark's result goes: a table or JSON to standard output or -o, and on request an
/// HTML report and an SVG chart. Made before the measurement, so that a path that cannot be written
/// is refused first; files appear complete or not at all.
class ReportOutput {
 public:
  /// Throws FileError naming the flag, InvalidArgument if two flags name one file.
  ReportOutput(const CommonOptions& common, const std::string& html, const std::string& svg = {});

  /// The chart of the SVG file is the report's first.
  void write(const Json& json, const Report& report);

 private:
  bool json_;
  Output output_;
  std::optional<Output> html_;
  std::optional<Output> svg_;
};

}  // namespace quest::cli
