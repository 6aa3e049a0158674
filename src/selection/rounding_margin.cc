// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "selection/rounding_margin.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace quest {

namespace {

constexpr double kUnit = 0x1p-24;
constexpr int kMoreRoundings = 24;
/// Sums up to here, and what the softmax multiplies them by, are far from overflow.
constexpr double kLargest = static_cast<double>(std::numeric_limits<float>::max()) / 16;
/// Below this the integers of a query block are all 0 (see attend_q8-inl.h, score_q4_vnni-inl.h).
constexpr double kQueryUnderflow = 4e-32;

/// By how much one channel of a query may change when its block becomes integers.
double integer_query_error(double greatest) {
  return greatest <= kQueryUnderflow ? greatest : 0.51 * greatest / 32767;
}

}  // namespace

double rounding_margin(const float* q, const float* magnitudes, std::int32_t head_dim, float scale,
                       KvType type, SummaryType summary) {
  const double roundings = head_dim + kMoreRoundings;
  const double gamma = roundings * kUnit / (1 - roundings * kUnit);
  const bool integers = type == KvType::kQ8_0 || summary == SummaryType::kQ4;
  double margin = 0;
  double total = 0;
  for (std::int32_t first = 0; first < head_dim; first += kScaleBlock) {
    const std::int32_t end = std::min(first + kScaleBlock, head_dim);
    double greatest = 0;
    for (std::int32_t j = first; j < end; ++j)
      greatest = std::max(greatest, std::abs(double{q[j]}));
    const double error = integers ? integer_query_error(greatest) : 0;
    for (std::int32_t j = first; j < end; ++j) {
      const double factor = std::abs(double{q[j]}) + error;
      total += factor * magnitudes[j];
      margin += (gamma * factor + error) * magnitudes[j];
    }
  }
  // Written so that NaN (0 times an infinite magnitude) fails too.
  if (!(total * std::max(1.0, double{scale}) < kLargest)) {
    return std::numeric_limits<double>::infinity();
  }
  // Each rounding below the smallest normal number is off by less than that.
  return 1.01 * (margin + roundings * 0x1p-126);
}

}  // namespace quest
