// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "bench/html_report.h"

namespace quest::cli {
namespace {

constexpr const char* kStyle =
    ":root{color-scheme:light dark}"
    "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;"
    "color:#24292f;background:#fff}"
    "h1{font-size:1.6rem}h2{font-size:1.15rem;margin:2rem 0 .5rem}"
    "dl{display:grid;grid-template-columns:max-content 1fr;gap:.1rem 1rem;font-size:.875rem}"
    "dt{opacity:.7}dd{margin:0;overflow-wrap:anywhere}"
    ".chart{width:100%;height:auto;margin:1rem 0}.scroll{overflow-x:auto}"
    "table{border-collapse:collapse;font-size:.875rem;font-variant-numeric:tabular-nums}"
    "th,td{padding:.25rem .75rem;text-align:right;border-bottom:1px solid #d8dee4;"
    "white-space:nowrap}th:first-child,td:first-child{text-align:left}"
    "@media(prefers-color-scheme:dark){body{color:#e6edf3;background:#11161c}"
    "th,td{border-color:#3a424c}}";

std::string cells(const std::vector<std::string>& texts, const std::string& tag) {
  std::string html = "<tr>";
  for (const std::string& text : texts) {
    html.append("<").append(tag).append(">").append(escaped(text));
    html.append("</").append(tag).append(">");
  }
  return html + "</tr>\n";
}

std::string table_html(const Table& table) {
  std::string html = table.title.empty() ? "" : "<h2>" + escaped(table.title) + "</h2>\n";
  html +=
      "<div class=\"scroll\"><table>\n<thead>" + cells(table.headers, "th") + "</thead>\n<tbody>\n";
  for (const auto& row : table.rows) html += cells(row, "td");
  return html + "</tbody>\n</table></div>\n";
}

std::string facts_html(const Json& facts) {
  std::string html = "<dl>\n";
  for (const auto& [name, value] : facts.items()) {
    const std::string text = value.is_string()
                                 ? value.get<std::string>()
                                 : value.dump(-1, ' ', false, Json::error_handler_t::replace);
    html += "<dt>" + escaped(name) + "</dt><dd>" + escaped(text) + "</dd>\n";
  }
  return html + "</dl>\n";
}

}  // namespace

std::string as_html(const Report& report) {
  std::string html =
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>" +
      escaped(report.title) + "</title>\n<style>" + kStyle + chart_style() +
      "</style>\n</head>\n<body>\n<h1>" + escaped(report.title) + "</h1>\n";
  for (const std::string& note : report.notes) html += "<p>" + escaped(note) + "</p>\n";
  for (const Chart& chart : report.charts) html += draw(chart);
  for (const Table& table : report.tables) html += table_html(table);
  return html + "<h2>Measured on</h2>\n" + facts_html(report.facts) + "</body>\n</html>\n";
}

}  // namespace quest::cli
