// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace quest::cli {

struct Series {
  std::string name;
  std::vector<std::pair<double, double>> points;  ///< (x, y), x rising, all above zero
  bool dashed = false;
};

/// Lines over a logarithmic x axis whose ticks are the measured values.
struct Chart {
  std::string title;
  std::string x_label;
  std::string y_label;
  bool log_y = false;  ///< else from zero up
  std::vector<Series> series;
};

/// The chart as an SVG element for a page that holds `chart_style`. It links to nothing.
std::string draw(const Chart& chart);
/// The chart as an SVG file of its own, readable on light and dark pages.
std::string draw_file(const Chart& chart);
/// The colours of charts as CSS, for light and dark.
std::string chart_style();

/// Text with the characters that XML reserves replaced, and bytes that are not UTF-8.
std::string escaped(const std::string& text);

}  // namespace quest::cli
