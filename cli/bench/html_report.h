// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "bench/chart.h"
#include "bench/table.h"
#include "json_output.h"

namespace quest::cli {

/// A result for people: what was measured on what, charts, tables.
// NOLINTNEXTLINE(bugprone-exception-escape): the destructor of Json, which never throws
struct Report {
  std::string title;
  Json facts;  ///< scalars and lists of scalars; anything nested deeper is left to the JSON
  std::vector<std::string> notes;
  std::vector<Chart> charts;
  std::vector<Table> tables;
};

/// One HTML page that needs nothing else: styles and charts are inside, it opens offline and loads
/// nothing.
std::string as_html(const Report& report);

}  // namespace quest::cli
