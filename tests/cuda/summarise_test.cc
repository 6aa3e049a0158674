// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
// The summaries of append_summarise on the emulator: 8-bit bounds are rounded outward, whatever the
// key, and 4-bit boxes are the host's (SPEC S7.6).
#include <ggml.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <utility>
#include <vector>

#include "attention/cuda/device.h"
#include "cache/quantise.h"
#include "cuda/emulator/emulated_device.h"

namespace quest::test {
namespace {

constexpr std::int32_t kHeadDim = 64;
constexpr std::int32_t kSlots = 8;

/// The 8-bit summary of one page.
struct Q8 {
  std::int8_t low[kHeadDim];
  std::int8_t high[kHeadDim];
  std::uint16_t scales[kHeadDim / 32];

  float scale(std::int32_t channel) const { return ggml_fp16_to_fp32(scales[channel / 32]); }
};

/// The 4-bit summary of one page.
struct Q4 {
  std::uint8_t q[kHeadDim];
  std::uint16_t scales[2 * kHeadDim / 32];
};

/// Makes one summary. keys: [tokens, kHeadDim] bits.
void summarise(const std::vector<std::uint16_t>& keys, bool bf16, SummaryType type,
               std::int8_t* summary, std::uint16_t* scales) {
  std::vector<std::uint16_t> page(std::size_t{kSlots} * kHeadDim, 0xFFFF);  // unused slots hold NaN
  std::copy(keys.begin(), keys.end(), page.begin());
  const cuda::StepCounts counts{0, 1, 0};
  const cuda::TouchedPage touched{0, static_cast<std::int32_t>(keys.size()) / kHeadDim, 0, 0};
  cuda::LayerArgs args;
  args.shape = {1, kHeadDim, 3, 1, bf16, type};
  args.pool.k = page.data();
  args.pool.rounded_summaries = summary;
  args.pool.summary_scales = scales;
  args.counts = &counts;
  args.touched = &touched;
  emulator::make_device()->launch(cuda::Kernel::kAppendSummarise, args, 1);
}

Q8 summarise_q8(const std::vector<std::uint16_t>& keys, bool bf16) {
  Q8 result{};
  std::int8_t bounds[2 * kHeadDim];
  summarise(keys, bf16, SummaryType::kQ8, bounds, result.scales);
  std::memcpy(result.low, bounds, kHeadDim);
  std::memcpy(result.high, bounds + kHeadDim, kHeadDim);
  return result;
}

std::uint16_t f16(float x) { return ggml_fp32_to_fp16(x); }

/// One token, so that both bounds are its key. The block's greatest is 127, its scale 1.
TEST(CudaSummarise, Q8_BoundsAreRoundedOutward) {
  std::vector<std::uint16_t> keys(kHeadDim, 0);
  const std::pair<float, std::pair<int, int>> cases[] = {
      {127, {127, 127}},    {3.25F, {3, 4}},    {3.75F, {3, 4}},   {3.5F, {3, 4}},
      {-3.25F, {-4, -3}},   {-3.75F, {-4, -3}}, {-3.5F, {-4, -3}}, {-126.5F, {-127, -126}},
      {126.5F, {126, 127}}, {1e-6F, {0, 1}},    {-1e-6F, {-1, 0}}, {0, {0, 0}}};
  for (std::size_t i = 0; i < std::size(cases); ++i) keys[i] = f16(cases[i].first);
  const Q8 summary = summarise_q8(keys, false);
  EXPECT_EQ(summary.scales[0], 0x3C00);
  for (std::size_t i = 0; i < std::size(cases); ++i) {
    EXPECT_EQ(int{summary.low[i]}, cases[i].second.first) << cases[i].first;
    EXPECT_EQ(int{summary.high[i]}, cases[i].second.second) << cases[i].first;
  }
}

/// 128 / 127 lies 0.06 of a step of f16 above 1 + 8 / 1024: the scale is the next above, not the
/// nearest, whose 127 steps would not reach 128.
TEST(CudaSummarise, Q8_ScaleReachesTheGreatestKey) {
  std::vector<std::uint16_t> keys(kHeadDim, 0);
  keys[0] = f16(128);
  keys[40] = f16(-128);
  const Q8 summary = summarise_q8(keys, false);
  EXPECT_EQ(summary.scales[0], 0x3C09);
  EXPECT_EQ(summary.scales[1], 0x3C09);
  EXPECT_EQ(int{summary.high[0]}, 127);
  EXPECT_EQ(int{summary.low[40]}, -127);
}

/// Every pair of 16-bit patterns may meet in a block. Bounds hold and are the tightest: one step
/// further in would not hold.
TEST(CudaSummarise, Q8_BoundsHoldAndAreTight) {
  std::mt19937 random(21);
  for (const bool bf16 : {false, true}) {
    // bf16 beyond what f16 scales reach has no summary.
    const std::uint64_t greatest = bf16 ? 0x4AF0 : 0x7BFF;
    const auto value = [&](std::uint16_t bits) {
      return bf16 ? ggml_bf16_to_fp32({bits}) : ggml_fp16_to_fp32(bits);
    };
    for (int i = 0; i < 3000; ++i) {
      // From all magnitudes, or from near the greatest of the block.
      const std::uint64_t range = i % 2 == 0 ? greatest : 1 + random() % 600;
      const std::uint64_t top = range + random() % (greatest - range + 1);
      std::vector<std::uint16_t> keys(kHeadDim * (1 + random() % 3));
      for (std::uint16_t& key : keys) {
        key = static_cast<std::uint16_t>((top - random() % (range + 1)) | (random() & 0x8000U));
      }
      const Q8 summary = summarise_q8(keys, bf16);
      for (std::int32_t j = 0; j < kHeadDim; ++j) {
        float low = value(keys[static_cast<std::size_t>(j)]);
        float high = low;
        for (std::size_t t = static_cast<std::size_t>(j); t < keys.size(); t += kHeadDim) {
          low = std::min(low, value(keys[t]));
          high = std::max(high, value(keys[t]));
        }
        const double scale = summary.scale(j);
        ASSERT_LE(summary.low[j] * scale, low) << "case " << i << " channel " << j;
        ASSERT_GE(summary.high[j] * scale, high) << "case " << i << " channel " << j;
        ASSERT_GT((summary.low[j] + 1) * scale, low) << "case " << i << " channel " << j;
        ASSERT_LT((summary.high[j] - 1) * scale, high) << "case " << i << " channel " << j;
      }
    }
  }
}

/// Scales that are NaN are written as one pattern.
std::vector<std::uint16_t> canonical(const std::uint16_t* scales) {
  std::vector<std::uint16_t> result(scales, scales + 2 * kHeadDim / 32);
  for (std::uint16_t& bits : result) {
    if ((bits & 0x7FFF) > 0x7C00) bits = 0x7E00;
  }
  return result;
}

/// From every 16-bit pattern, NaN and infinities too; in most cases of one magnitude, so that
/// quotients lie at the ends of their ranges.
TEST(CudaSummarise, Q4_IsTheHostsBitForBit) {
  std::mt19937 random(23);
  int nan = 0;
  for (const bool bf16 : {false, true}) {
    const auto value = [&](std::uint16_t bits) {
      return bf16 ? ggml_bf16_to_fp32({bits}) : ggml_fp16_to_fp32(bits);
    };
    for (int i = 0; i < 4000; ++i) {
      const std::uint64_t greatest = i % 10 == 0 ? 0x7FFF : 0x4AF0;
      const std::uint64_t range = i % 2 == 0 ? greatest : 1 + random() % 600;
      const std::uint64_t top = range + random() % (greatest - range + 1);
      std::vector<std::uint16_t> keys(kHeadDim * (1 + random() % 3));
      for (std::uint16_t& key : keys) {
        key = static_cast<std::uint16_t>((top - random() % (range + 1)) | (random() & 0x8000U));
      }
      std::int8_t box[kHeadDim];
      std::uint16_t scales[2 * kHeadDim / 32];
      summarise(keys, bf16, SummaryType::kQ4, box, scales);

      float low[kHeadDim];
      float high[kHeadDim];
      for (std::size_t j = 0; j < kHeadDim; ++j) {
        low[j] = high[j] = value(keys[j]);
        for (std::size_t t = j + kHeadDim; t < keys.size(); t += kHeadDim) {
          const float key = value(keys[t]);
          if (std::isnan(key)) low[j] = high[j] = key;
          low[j] = std::min(low[j], key);
          high[j] = std::max(high[j], key);
        }
      }
      Q4 host{};
      quantise_summary_q4(low, high, kHeadDim, host.q, host.scales);
      ASSERT_EQ(std::memcmp(box, host.q, kHeadDim), 0) << "case " << i;
      ASSERT_EQ(canonical(scales), canonical(host.scales)) << "case " << i;
      nan += host.scales[0] == 0x7E00;
    }
  }
  EXPECT_GT(nan, 100);
  EXPECT_LT(nan, 4000);
}

}  // namespace
}  // namespace quest::test
