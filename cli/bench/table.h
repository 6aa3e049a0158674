// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace quest::cli {

/// Cells as people read them; the first column names the row.
struct Table {
  std::string title;  ///< may be empty
  std::vector<std::string> headers;
  std::vector<std::vector<std::string>> rows;  ///< as many cells as headers
};

/// Columns aligned, one header line first, the title above it.
std::string as_text(const Table& table);

/// A number with this many decimals.
std::string fixed(double value, int decimals);

}  // namespace quest::cli
