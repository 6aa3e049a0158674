// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace quest::eval {

struct Interval {
  double low = 0;
  double high = 0;
};

double mean(std::span<const double> values);  ///< 0 for none
/// The mean of the middle two of an even number of values; 0 for none.
double median(std::vector<double> values);

/// Value that Student's t with `degrees` ≥ 1 of freedom stays below with this probability, which
/// lies in (0.5, 1).
double student_quantile(double probability, std::int64_t degrees);

/// 95 % confidence interval of the mean of all values, for series whose neighbouring values depend
/// on each other (differences of consecutive tokens): each series is cut into equal runs of about
/// `run` values, the runs are taken as independent, Student's t with one degree less than there are
/// runs. Runs of unequal length enter by their sums. Nothing for fewer than two runs.
std::optional<Interval> mean_interval(std::span<const std::vector<double>> series,
                                      std::int64_t run);

}  // namespace quest::eval
