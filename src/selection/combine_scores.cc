// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "selection/combine_scores.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "selection/combine_scores.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// After foreach_target.h, which compiles this file once a target.
#include <hwy/contrib/math/math-inl.h>

#include <algorithm>
#include <cmath>
#include <limits>

HWY_BEFORE_NAMESPACE();
namespace quest::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

using Tag = hn::ScalableTag<float>;

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

/// Logarithm of the softmax of scale · row, in place. row: `count` scores, then -inf, which has no
/// weight, up to whole vectors: `padded`.
void log_softmax(float* row, std::size_t count, std::size_t padded, float scale) {
  const Tag d;
  const std::size_t lanes = hn::Lanes(d);
  const float top = *std::max_element(row, row + count);
  if (std::isinf(top)) {
    const float share = -std::log(static_cast<float>(std::count(row, row + count, top)));
    std::transform(row, row + count, row,
                   [=](float x) { return x == top ? share : kMinusInfinity; });
    return;
  }
  const auto scales = hn::Set(d, scale);
  auto sums = hn::Zero(d);
  for (std::size_t i = 0; i < padded; i += lanes) {
    const auto x = hn::Mul(scales, hn::Sub(hn::LoadU(d, row + i), hn::Set(d, top)));
    hn::StoreU(x, d, row + i);
    sums = hn::Add(sums, hn::Exp(d, x));
  }
  const auto log_sum = hn::Set(d, std::log(hn::GetLane(hn::SumOfLanes(d, sums))));
  for (std::size_t i = 0; i < padded; i += lanes) {
    hn::StoreU(hn::Sub(hn::LoadU(d, row + i), log_sum), d, row + i);
  }
}

void combine_softmax(const HeadScores& scores, float scale, float* logs, float* combined) {
  const Tag d;
  const std::size_t lanes = hn::Lanes(d);
  const std::size_t padded = (scores.count + lanes - 1) / lanes * lanes;
  for (std::int32_t h = 0; h < scores.group; ++h) {
    float* const row = logs + h * padded;
    std::copy_n(scores.row(h), scores.count, row);
    std::fill(row + scores.count, row + padded, kMinusInfinity);
    log_softmax(row, scores.count, padded, scale);
  }
  const auto nothing = hn::Set(d, kMinusInfinity);
  for (std::size_t i = 0; i < padded; i += lanes) {
    auto top = nothing;
    for (std::int32_t h = 0; h < scores.group; ++h) {
      top = hn::Max(top, hn::LoadU(d, logs + h * padded + i));
    }
    // No head gives this candidate anything: -inf - -inf would be NaN.
    const auto empty = hn::Eq(top, nothing);
    const auto base = hn::IfThenZeroElse(empty, top);
    auto sum = hn::Zero(d);
    for (std::int32_t h = 0; h < scores.group; ++h) {
      sum = hn::Add(sum, hn::Exp(d, hn::Sub(hn::LoadU(d, logs + h * padded + i), base)));
    }
    const auto log_sum = hn::Log(d, hn::Max(sum, hn::Set(d, 1.0F)));  // the greatest adds 1
    hn::StoreU(hn::IfThenElse(empty, nothing, hn::Add(base, log_sum)), d, combined + i);
  }
}

void combine_max(const HeadScores& scores, float* HWY_RESTRICT combined) {
  std::copy_n(scores.row(0), scores.count, combined);
  for (std::int32_t h = 1; h < scores.group; ++h) {
    const float* const row = scores.row(h);
    for (std::size_t i = 0; i < scores.count; ++i) combined[i] = std::max(combined[i], row[i]);
  }
}

void combine_mean(const HeadScores& scores, float* HWY_RESTRICT combined) {
  std::copy_n(scores.row(0), scores.count, combined);
  for (std::int32_t h = 1; h < scores.group; ++h) {
    const float* const row = scores.row(h);
    for (std::size_t i = 0; i < scores.count; ++i) combined[i] += row[i];
  }
  const auto group = static_cast<float>(scores.group);
  for (std::size_t i = 0; i < scores.count; ++i) combined[i] /= group;
}

}  // namespace
}  // namespace quest::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace quest {
namespace {

HWY_EXPORT(combine_max);
HWY_EXPORT(combine_mean);
HWY_EXPORT(combine_softmax);

}  // namespace

void combine_max(const HeadScores& scores, float* combined) {
  HWY_DYNAMIC_DISPATCH(combine_max)(scores, combined);
}

void combine_mean(const HeadScores& scores, float* combined) {
  HWY_DYNAMIC_DISPATCH(combine_mean)(scores, combined);
}

void combine_softmax(const HeadScores& scores, float scale, float* log_probabilities,
                     float* combined) {
  HWY_DYNAMIC_DISPATCH(combine_softmax)(scores, scale, log_probabilities, combined);
}

}  // namespace quest
#endif
