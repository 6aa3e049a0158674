// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "selection/top_k.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "selection/top_k.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>

HWY_BEFORE_NAMESPACE();
namespace quest::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::ScalableTag<float>;
using KeyTag = hn::ScalableTag<std::uint32_t>;
using Keys = hn::Vec<KeyTag>;

bool has_nan(const float* values, std::size_t count) {
  const FloatTag d;
  auto nan = hn::FirstN(d, 0);
  std::size_t i = 0;
  for (; i + hn::Lanes(d) <= count; i += hn::Lanes(d)) {
    nan = hn::Or(nan, hn::IsNaN(hn::LoadU(d, values + i)));
  }
  bool tail = false;
  for (; i < count; ++i) tail |= values[i] != values[i];
  return tail || !hn::AllFalse(d, nan);
}

Keys order_keys(hn::Vec<FloatTag> scores) {
  const FloatTag d;
  const KeyTag dk;
  // Adding +0 turns -0 into +0: equal scores need equal keys.
  const auto bits = hn::BitCast(dk, hn::Add(scores, hn::Zero(d)));
  // Negative floats order backwards as integers: flip them whole, and lift the others above.
  const auto negative =
      hn::BitCast(dk, hn::BroadcastSignBit(hn::BitCast(hn::RebindToSigned<KeyTag>(), bits)));
  return hn::Xor(bits, hn::Or(negative, hn::Set(dk, 0x80000000U)));
}

KeyRange make_order_keys(const float* scores, std::size_t count, std::uint32_t* keys) {
  const FloatTag d;
  const KeyTag dk;
  const std::size_t lanes = hn::Lanes(d);
  auto low = hn::Set(dk, ~0U);
  auto high = hn::Zero(dk);
  const auto add = [&](const float* in, std::uint32_t* out) HWY_ATTR {
    const auto key = order_keys(hn::LoadU(d, in));
    hn::StoreU(key, dk, out);
    low = hn::Min(low, key);
    high = hn::Max(high, key);
  };
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) add(scores + i, keys + i);
  if (i < count) {
    // A copy of the last score in the lanes past the end changes neither bound.
    float tail[HWY_MAX_BYTES / sizeof(float)];
    std::fill(tail, tail + lanes, scores[count - 1]);
    std::copy(scores + i, scores + count, tail);
    add(tail, keys + i);
  }
  std::fill(keys + count, keys + count + kKeyPadding, kExcludedKey);
  return {hn::GetLane(hn::MinOfLanes(dk, low)), hn::GetLane(hn::MaxOfLanes(dk, high)),
          has_nan(scores, count)};
}

// Both passes below run into the padding. It is excluded, so it is never above a pivot; where it is
// kept among the keys at or below one, it changes no choice.

std::int32_t count_above(const std::uint32_t* keys, std::size_t count, std::uint32_t pivot) {
  const KeyTag d;
  std::size_t above = 0;
  for (std::size_t i = 0; i < count; i += hn::Lanes(d)) {
    above += hn::CountTrue(d, hn::Gt(hn::LoadU(d, keys + i), hn::Set(d, pivot)));
  }
  return static_cast<std::int32_t>(above);
}

/// Keeps the keys on one side of the pivot and returns how many. `out` may be `keys`: writing never
/// overtakes reading.
std::size_t keep_side(const std::uint32_t* keys, std::size_t count, std::uint32_t pivot, bool above,
                      std::uint32_t* out) {
  const KeyTag d;
  std::size_t kept = 0;
  for (std::size_t i = 0; i < count; i += hn::Lanes(d)) {
    const auto key = hn::LoadU(d, keys + i);
    const auto greater = hn::Gt(key, hn::Set(d, pivot));
    kept += hn::CompressStore(key, above ? greater : hn::Not(greater), d, out + kept);
  }
  hn::StoreU(hn::Zero(d), d, out + kept);
  return kept;
}

KeyThreshold find_threshold(const std::uint32_t* keys, std::size_t count, std::int32_t k,
                            KeyRange range, std::uint32_t* refine) {
  // Bisection of the key range, on fewer keys each time: 32 rounds at most, and the first few do
  // most of the work unless the scores are made up to defeat it.
  std::uint32_t low = range.low;
  std::uint32_t high = range.high;
  while (low < high) {
    const std::uint32_t pivot = low + (high - low) / 2;
    const std::int32_t above = count_above(keys, count, pivot);
    if (above == k) return {pivot, 0};
    const bool go_up = above > k;
    if (go_up) {
      low = pivot + 1;
    } else {
      k -= above;
      high = pivot;
    }
    if (above == 0) continue;
    count = keep_side(keys, count, pivot, go_up, refine);
    keys = refine;
  }
  return {low, k};
}

std::uint64_t bits_of(hn::Mask<KeyTag> mask) {
  const KeyTag d;
  std::uint8_t bytes[8] = {};
  hn::StoreMaskBits(d, mask, bytes);
  std::uint64_t bits = 0;
  for (int i = 7; i >= 0; --i) bits = bits << 8 | bytes[i];
  const std::size_t lanes = hn::Lanes(d);
  return lanes == 64 ? bits : bits & ((std::uint64_t{1} << lanes) - 1);
}

void mark_passing(const std::uint32_t* keys, std::size_t count, KeyThreshold threshold,
                  std::uint64_t* marks) {
  const KeyTag d;
  const auto limit = hn::Set(d, threshold.key);
  std::int32_t ties = threshold.ties;
  for (std::size_t i = 0; i < count; i += hn::Lanes(d)) {
    const auto key = hn::LoadU(d, keys + i);
    std::uint64_t pass = bits_of(hn::Gt(key, limit));
    if (ties > 0) {
      for (std::uint64_t equal = bits_of(hn::Eq(key, limit)); equal != 0 && ties > 0; --ties) {
        pass |= equal & (~equal + 1);
        equal &= equal - 1;
      }
    }
    marks[i / 64] |= pass << (i % 64);
  }
}

}  // namespace
}  // namespace quest::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace quest {
namespace {

HWY_EXPORT(has_nan);
HWY_EXPORT(make_order_keys);
HWY_EXPORT(find_threshold);
HWY_EXPORT(mark_passing);

}  // namespace

bool has_nan(std::span<const float> values) {
  return HWY_DYNAMIC_DISPATCH(has_nan)(values.data(), values.size());
}

KeyRange make_order_keys(std::span<const float> scores, std::uint32_t* keys) {
  return HWY_DYNAMIC_DISPATCH(make_order_keys)(scores.data(), scores.size(), keys);
}

KeyThreshold find_threshold(const std::uint32_t* keys, std::size_t count, std::int32_t k,
                            KeyRange range, std::uint32_t* refine) {
  return HWY_DYNAMIC_DISPATCH(find_threshold)(keys, count, k, range, refine);
}

void mark_passing(const std::uint32_t* keys, std::size_t count, KeyThreshold threshold,
                  std::uint64_t* marks) {
  HWY_DYNAMIC_DISPATCH(mark_passing)(keys, count, threshold, marks);
}

}  // namespace quest
#endif
