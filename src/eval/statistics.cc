// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "quest/eval/statistics.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

namespace quest::eval {
namespace {

/// Probability that |t| stays below `t` ≥ 0: the closed series for whole degrees of freedom.
double student_within(double t, std::int64_t degrees) {
  const auto n = static_cast<double>(degrees);
  const double angle = std::atan(t / std::sqrt(n));
  const double cosine_squared = std::cos(angle) * std::cos(angle);
  const bool odd = degrees % 2 != 0;
  double term = odd ? std::cos(angle) : 1;
  double sum = degrees == 1 ? 0 : term;
  for (std::int64_t k = odd ? 3 : 2; k <= degrees - 2; k += 2) {
    term *= cosine_squared * static_cast<double>(k - 1) / static_cast<double>(k);
    sum += term;
  }
  const double series = std::sin(angle) * sum;
  return odd ? 2 / std::numbers::pi * (angle + series) : series;
}

struct Run {
  double sum;
  double count;
};

std::vector<Run> cut_into_runs(std::span<const std::vector<double>> series, std::int64_t run) {
  std::vector<Run> runs;
  for (const std::vector<double>& values : series) {
    const auto size = static_cast<std::int64_t>(values.size());
    if (size == 0) continue;
    const std::int64_t pieces = std::max<std::int64_t>(1, (size + run / 2) / run);
    for (std::int64_t i = 0; i < pieces; ++i) {
      const auto first = values.begin() + size * i / pieces;
      const auto last = values.begin() + size * (i + 1) / pieces;
      runs.push_back({std::accumulate(first, last, 0.0), static_cast<double>(last - first)});
    }
  }
  return runs;
}

}  // namespace

double mean(std::span<const double> values) {
  if (values.empty()) return 0;
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const std::size_t upper = values.size() / 2;
  return values.size() % 2 == 1 ? values[upper] : (values[upper - 1] + values[upper]) / 2;
}

double student_quantile(double probability, std::int64_t degrees) {
  const double within = 2 * probability - 1;
  double low = 0;
  double high = 1;
  while (student_within(high, degrees) < within) high *= 2;
  for (int i = 0; i < 200 && low < high; ++i) {
    const double middle = (low + high) / 2;
    if (middle == low || middle == high) break;
    (student_within(middle, degrees) < within ? low : high) = middle;
  }
  return (low + high) / 2;
}

std::optional<Interval> mean_interval(std::span<const std::vector<double>> series,
                                      std::int64_t run) {
  const std::vector<Run> runs = cut_into_runs(series, run);
  if (runs.size() < 2) return std::nullopt;
  double sum = 0;
  double count = 0;
  for (const Run& r : runs) {
    sum += r.sum;
    count += r.count;
  }
  const double centre = sum / count;
  double squares = 0;
  for (const Run& r : runs) squares += std::pow(r.sum - centre * r.count, 2);
  const auto number = static_cast<double>(runs.size());
  const double error = std::sqrt(squares * number / (number - 1)) / count;
  const double half = error * student_quantile(0.975, static_cast<std::int64_t>(runs.size()) - 1);
  return Interval{centre - half, centre + half};
}

}  // namespace quest::eval
