// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "bench/chart.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <limits>
#include <set>

#include "bench/table.h"

namespace quest::cli {
namespace {

// Drawing units.
constexpr double kWidth = 760;
constexpr double kHeight = 420;
constexpr double kLeft = 72;
constexpr double kRight = 20;
constexpr double kBottom = 52;
constexpr double kLetter = 7.2;  // average width of a letter
constexpr int kColours = 8;

struct Range {
  double low = std::numeric_limits<double>::infinity();
  double high = 0;
  void include(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
};

std::string number(double value) {
  if (value >= 1024 && std::fmod(value, 1024) == 0) return fixed(value / 1024, 0) + "k";
  if (value == std::floor(value) && value < 1e9) return fixed(value, 0);
  char text[32];
  std::snprintf(text, sizeof text, "%.3g", value);
  return text;
}

// 1, 2 and 5 times powers of ten from below `low` to above `high`.
std::vector<double> decade_ticks(double low, double high) {
  std::vector<double> ticks;
  for (double decade = std::pow(10.0, std::floor(std::log10(low))); decade <= high; decade *= 10) {
    for (const double step : {1.0, 2.0, 5.0}) ticks.push_back(step * decade);
  }
  while (ticks.size() > 1 && ticks[1] <= low) ticks.erase(ticks.begin());
  while (ticks.size() > 2 && ticks[ticks.size() - 2] >= high) ticks.pop_back();
  if (ticks.back() < high) ticks.push_back(10 * std::pow(10.0, std::floor(std::log10(high))));
  return ticks;
}

// From zero to above `high` in about five round steps.
std::vector<double> linear_ticks(double high) {
  const double rough = high / 5;
  const double decade = std::pow(10.0, std::floor(std::log10(rough)));
  double step = 10 * decade;
  for (const double factor : {5.0, 2.5, 2.0, 1.0}) {
    if (factor * decade >= rough) step = factor * decade;
  }
  std::vector<double> ticks{0};
  while (ticks.back() < high) ticks.push_back(ticks.back() + step);
  return ticks;
}

class Drawing {
 public:
  explicit Drawing(const Chart& chart) : chart_(chart) {
    for (const Series& series : chart.series) {
      for (const auto& [x, y] : series.points) {
        if (!(x > 0 && y > 0) || !std::isfinite(x + y)) continue;
        x_.include(x);
        y_.include(y);
        x_ticks_.insert(x);
      }
    }
    if (x_ticks_.empty()) return;
    y_ticks_ = chart.log_y ? decade_ticks(y_.low, y_.high) : linear_ticks(y_.high);
  }

  std::string draw() {
    add_legend();
    if (!x_ticks_.empty()) {
      add_axes();
      for (std::size_t i = 0; i < chart_.series.size(); ++i) add_series(i);
    }
    return svg_;
  }

 private:
  double x_of(double x) const {
    const double width = kWidth - kLeft - kRight;
    if (x_.high == x_.low) return kLeft + width / 2;
    return kLeft + width * std::log(x / x_.low) / std::log(x_.high / x_.low);
  }
  double y_of(double y) const {
    const double low = y_ticks_.front();
    const double high = y_ticks_.back();
    const double share =
        chart_.log_y ? std::log(y / low) / std::log(high / low) : (y - low) / (high - low);
    return kHeight - kBottom - share * (kHeight - kBottom - top_);
  }
  static std::string at(const char* name, double value) {
    return std::string(" ") + name + "=\"" + fixed(value, 1) + "\"";
  }
  // One digit: there are fewer colours than ten.
  static std::string colour(std::size_t index) {
    return {'s', static_cast<char>('0' + index % kColours)};
  }

  void text(double x, double y, const std::string& anchor, const std::string& words,
            const std::string& more = {}) {
    svg_ += "<text" + at("x", x) + at("y", y) + " text-anchor=\"" + anchor + "\"" + more + ">" +
            escaped(words) + "</text>\n";
  }
  void line(const char* kind, double x1, double y1, double x2, double y2) {
    svg_ += std::string("<line class=\"") + kind + "\"" + at("x1", x1) + at("y1", y1) +
            at("x2", x2) + at("y2", y2) + "/>\n";
  }

  void add_legend() {
    text(kLeft, 24, "start", chart_.title, " class=\"title\"");
    double x = kLeft;
    top_ = 48;
    for (std::size_t i = 0; i < chart_.series.size(); ++i) {
      const Series& series = chart_.series[i];
      const double width = 34 + kLetter * static_cast<double>(series.name.size());
      if (x > kLeft && x + width > kWidth - kRight) {
        x = kLeft;
        top_ += 18;
      }
      svg_ += "<line class=\"line " + colour(i) + (series.dashed ? " dashed" : "") + "\"" +
              at("x1", x) + at("y1", top_ - 4) + at("x2", x + 20) + at("y2", top_ - 4) + "/>\n";
      text(x + 25, top_, "start", series.name);
      x += width;
    }
    top_ += 20;
  }

  void add_axes() {
    const double bottom = kHeight - kBottom;
    for (const double tick : y_ticks_) {
      line("grid", kLeft, y_of(tick), kWidth - kRight, y_of(tick));
      text(kLeft - 8, y_of(tick) + 4, "end", number(tick));
    }
    double last = -1000;
    for (const double tick : x_ticks_) {
      const double x = x_of(tick);
      line("axis", x, bottom, x, bottom + 5);
      if (x - last < 44) continue;
      text(x, bottom + 20, "middle", number(tick));
      last = x;
    }
    line("axis", kLeft, bottom, kWidth - kRight, bottom);
    text((kLeft + kWidth - kRight) / 2, kHeight - 12, "middle", chart_.x_label);
    const double middle = (top_ + bottom) / 2;
    text(18, middle, "middle", chart_.y_label,
         " transform=\"rotate(-90 18 " + fixed(middle, 1) + ")\"");
  }

  void add_series(std::size_t index) {
    const Series& series = chart_.series[index];
    std::string path;
    std::string dots;
    for (const auto& [x, y] : series.points) {
      if (!(x > 0 && y > 0) || !std::isfinite(x + y)) continue;
      path += (path.empty() ? "M" : " L") + fixed(x_of(x), 1) + " " + fixed(y_of(y), 1);
      dots += "<circle class=\"dot " + colour(index) + "\"" + at("cx", x_of(x)) +
              at("cy", y_of(y)) + " r=\"3.5\"><title>" +
              escaped(series.name + ", " + number(x) + ": " + number(y)) + "</title></circle>\n";
    }
    if (path.empty()) return;
    svg_ += "<path class=\"line " + colour(index) + (series.dashed ? " dashed" : "") + "\" d=\"" +
            path + "\"/>\n" + dots;
  }

  const Chart& chart_;
  Range x_;
  Range y_;
  std::set<double> x_ticks_;
  std::vector<double> y_ticks_;
  double top_ = 0;
  std::string svg_;
};

std::string element(const Chart& chart, const std::string& attributes, const std::string& inside) {
  return "<svg class=\"chart\"" + attributes + " viewBox=\"0 0 " + fixed(kWidth, 0) + " " +
         fixed(kHeight, 0) + "\" role=\"img\" aria-label=\"" + escaped(chart.title) + "\">\n" +
         inside + Drawing(chart).draw() + "</svg>\n";
}

constexpr const char* kLight[kColours] = {"#0b6bcb", "#c2410c", "#1a7f4b", "#7c3fc4",
                                          "#b07a00", "#00808a", "#c0307a", "#56616b"};
constexpr const char* kDark[kColours] = {"#6cb2ff", "#ff9a62", "#5ad690", "#c39bfa",
                                         "#f0c04f", "#4fd0d8", "#ff8ac2", "#aab5bf"};

std::string colours(const char* const (&values)[kColours], const char* ink, const char* faint) {
  std::string css = std::string(".chart text{fill:") + ink + "}.chart .grid{stroke:" + faint +
                    "}.chart .axis{stroke:" + ink + "}";
  for (int i = 0; i < kColours; ++i) {
    css += ".chart .s";
    css += static_cast<char>('0' + i);
    css += std::string("{stroke:") + values[i] + ";fill:" + values[i] + "}";
  }
  return css;
}

// Bytes of the UTF-8 character that begins the text, 0 if none does.
std::size_t character_length(std::string_view text) {
  const auto first = static_cast<unsigned char>(text[0]);
  const std::size_t length = first < 0x80             ? 1
                             : (first & 0xE0) == 0xC0 ? 2
                             : (first & 0xF0) == 0xE0 ? 3
                             : (first & 0xF8) == 0xF0 ? 4
                                                      : 0;
  if (length == 0 || length > text.size()) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((static_cast<unsigned char>(text[i]) & 0xC0) != 0x80) return 0;
  }
  return length;
}

}  // namespace

std::string chart_style() {
  return ".chart text{font:13px system-ui,sans-serif}.chart .title{font-weight:600;font-size:15px}"
         ".chart .grid{stroke-width:1}.chart .axis{stroke-width:1}" +
         colours(kLight, "#24292f", "#d8dee4") + "@media(prefers-color-scheme:dark){" +
         colours(kDark, "#e6edf3", "#3a424c") + "}" +
         ".chart .line{stroke-width:2.25;fill:none}.chart .dashed{stroke-dasharray:6 4}"
         ".chart .dot{stroke:none}";
}

std::string draw(const Chart& chart) { return element(chart, "", ""); }

std::string draw_file(const Chart& chart) {
  return element(
      chart,
      " xmlns=\"http://www.w3.org/2000/svg\" width=\"" + fixed(kWidth, 0) + "\" height=\"" +
          fixed(kHeight, 0) + "\"",
      "<style>" + chart_style() +
          ".ground{fill:#fff}@media(prefers-color-scheme:dark){.ground{fill:#11161c}}"
          "</style>\n<rect class=\"ground\" width=\"100%\" height=\"100%\" rx=\"8\"/>\n");
}

std::string escaped(const std::string& text) {
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t length = character_length(std::string_view(text).substr(i));
    const char c = text[i];
    if (length == 0 || (static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t')) {
      out += "\xEF\xBF\xBD";
    } else if (c == '&') {
      out += "&amp;";
    } else if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else if (c == '"') {
      out += "&quot;";
    } else {
      out += text.substr(i, length);
    }
    i += std::max<std::size_t>(length, 1);
  }
  return out;
}

}  // namespace quest::cli
