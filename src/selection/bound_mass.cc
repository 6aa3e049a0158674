// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "selection/bound_mass.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace quest {

namespace {

/// A float32 sum of up to kMostKeys exponentials: 256 roundings, exp2 with an error of 1e-7 on an
/// argument of at most 127 that was rounded once.
constexpr double kSumError = 3e-5;
/// float64 sums over up to 10^9 pages, and their exponentials.
constexpr double kWideError = 1e-6;

}  // namespace

void BoundMass::start(std::span<const float> bounds, std::int32_t page_size, float scale,
                      double margin, std::span<double> weights) {
  weights_ = weights.first(bounds.size());
  scale_ = scale;
  reference_ = *std::max_element(bounds.begin(), bounds.end());
  read_ = 0;
  // The margin counts twice: bounds may be too low by it, and logits that were read too high.
  factor_ = page_size * std::exp(2 * scale_ * margin) * (1 + kSumError + 2 * kWideError);
  for (std::size_t p = 0; p < bounds.size(); ++p) {
    weights_[p] = std::exp(scale_ * (double{bounds[p]} - reference_));
  }
}

void BoundMass::add_read(float greatest, float sum) {
  read_ += double{sum} * std::exp(scale_ * (double{greatest} - reference_));
}

double BoundMass::epsilon() const {
  double unread = 0;
  for (const double weight : weights_) unread += weight;
  // What underflowed to nothing, or nearly, was less than this each.
  unread += static_cast<double>(weights_.size()) * std::numeric_limits<double>::min();
  const double ratio = factor_ * unread / read_;
  // Infinite or NaN: nothing that was read has a weight that float64 can hold.
  if (!(ratio < std::numeric_limits<double>::infinity())) return 1;
  return ratio / (1 + ratio);
}

}  // namespace quest
