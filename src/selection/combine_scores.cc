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
#include <iterator>
#include <limits>

HWY_BEFORE_NAMESPACE();
namespace quest::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

using Tag = hn::ScalableTag<float>;

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

/// The vector at row + i, -inf where it passes `count`.
hn::Vec<Tag> load_candidates(const float* row, std::size_t i, std::size_t count) {
  const Tag d;
  if (i + hn::Lanes(d) <= count) return hn::LoadU(d, row + i);
  float tail[HWY_MAX_BYTES / sizeof(float)];
  std::fill(std::copy(row + i, row + count, tail), std::end(tail), kMinusInfinity);
  return hn::LoadU(d, tail);
}

float greatest(const float* row, std::size_t count) {
  const Tag d;
  const std::size_t lanes = hn::Lanes(d);
  auto top = hn::Set(d, kMinusInfinity);
  for (std::size_t i = 0; i < count; i += lanes) {
    top = hn::Max(top, load_candidates(row, i, count));
  }
  return hn::GetLane(hn::MaxOfLanes(d, top));
}

/// Writes logarithms of a softmax over `count` candidates to `logs`, up to whole vectors, each too
/// great by the constant that it returns: log Σ exp(logs).
float unnormalised_logs(const float* row, std::size_t count, float scale, float* logs) {
  const Tag d;
  const std::size_t lanes = hn::Lanes(d);
  const float top = greatest(row, count);
  if (std::isinf(top)) {
    const auto tops = hn::Set(d, top);
    for (std::size_t i = 0; i < count; i += lanes) {
      const auto holds =
          hn::And(hn::Eq(load_candidates(row, i, count), tops), hn::FirstN(d, count - i));
      hn::StoreU(hn::IfThenElse(holds, hn::Zero(d), hn::Set(d, kMinusInfinity)), d, logs + i);
    }
    return std::log(static_cast<float>(std::count(row, row + count, top)));
  }
  auto sums = hn::Zero(d);
  for (std::size_t i = 0; i < count; i += lanes) {
    const auto x =
        hn::Mul(hn::Set(d, scale), hn::Sub(load_candidates(row, i, count), hn::Set(d, top)));
    hn::StoreU(x, d, logs + i);
    sums = hn::Add(sums, hn::Exp(d, x));
  }
  return std::log(hn::GetLane(hn::SumOfLanes(d, sums)));
}

void combine_softmax(const HeadScores& scores, float scale, float* logs, float* combined) {
  const Tag d;
  const std::size_t lanes = hn::Lanes(d);
  const std::size_t padded = (scores.count + lanes - 1) / lanes * lanes;
  const std::size_t stride = padded + 1;  // a row ends in its constant
  for (std::int32_t h = 0; h < scores.group; ++h) {
    float* const row = logs + h * stride;
    row[padded] = unnormalised_logs(scores.row(h), scores.count, scale, row);
  }
  const auto nothing = hn::Set(d, kMinusInfinity);
  for (std::size_t i = 0; i < padded; i += lanes) {
    const auto log_share = [&](std::int32_t h) HWY_ATTR {
      const float* const row = logs + h * stride;
      return hn::Sub(hn::LoadU(d, row + i), hn::Set(d, row[padded]));
    };
    auto top = nothing;
    for (std::int32_t h = 0; h < scores.group; ++h) top = hn::Max(top, log_share(h));
    // No head gives this candidate anything: -inf - -inf would be NaN.
    const auto empty = hn::Eq(top, nothing);
    const auto base = hn::IfThenZeroElse(empty, top);
    auto sum = hn::Zero(d);
    for (std::int32_t h = 0; h < scores.group; ++h) {
      sum = hn::Add(sum, hn::Exp(d, hn::Sub(log_share(h), base)));
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
