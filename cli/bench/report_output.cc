// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "bench/report_output.h"

#include "quest/error.h"

namespace quest::cli {
namespace {

void refuse_equal(const std::string& a, const char* flag_a, const std::string& b,
                  const char* flag_b) {
  if (a.empty() || a != b) return;
  throw InvalidArgument(std::string(flag_a) + " and " + flag_b + " both name '" + a +
                        "'; give two files");
}

std::string as_text(const Report& report) {
  std::string text;
  for (const std::string& note : report.notes) text += note + "\n";
  for (const Table& table : report.tables) {
    if (table.rows.empty()) continue;
    text += '\n';
    text += as_text(table);
  }
  return text;
}

}  // namespace

ReportOutput::ReportOutput(const CommonOptions& common, const std::string& html,
                           const std::string& svg)
    : json_(common.json),
      output_(common.output),
      html_(side_output(html, "--html")),
      svg_(side_output(svg, "--svg")) {
  refuse_equal(common.output, "-o", html, "--html");
  refuse_equal(common.output, "-o", svg, "--svg");
  refuse_equal(html, "--html", svg, "--svg");
}

void ReportOutput::write(const Json& json, const Report& report) {
  output_.write(json_ ? dump(json) : as_text(report));
  if (html_) html_->write(as_html(report));
  if (svg_) svg_->write(draw_file(report.charts.front()));
  output_.finish();
  if (html_) html_->finish();
  if (svg_) svg_->finish();
}

}  // namespace quest::cli
