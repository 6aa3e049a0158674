// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0

// Per-target include guard.
#if defined(QUEST_ATTENTION_CPU_SCORE_Q4_VNNI_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUEST_ATTENTION_CPU_SCORE_Q4_VNNI_INL_H_
#undef QUEST_ATTENTION_CPU_SCORE_Q4_VNNI_INL_H_
#else
#define QUEST_ATTENTION_CPU_SCORE_Q4_VNNI_INL_H_
#endif

#include <limits>

#include "attention/cpu/attend_q8-inl.h"
#include "attention/cpu/kernels.h"
#include "attention/cpu/score-inl.h"
#include "attention/cpu/simd-inl.h"

#if HWY_TARGET == HWY_AVX3

// Offsets here stay inside one page; those into the pool are 64-bit.
// NOLINTBEGIN(bugprone-implicit-widening-of-multiplication-result)
HWY_BEFORE_NAMESPACE();
namespace quest::cpu::HWY_NAMESPACE {

// q4 summaries by AVX512-VNNI: 64 channels stay bytes in one vector, and coefficients become 16-bit
// integers for each block of channels, two bytes each. Sums of products are exact in 32 bits, and
// as floats. Lane i holds channels 4i to 4i + 3, so half a vector shares a scale.

using Tag512 = hn::ScalableTag<float>;
using Int512 = hn::Vec<hn::RebindToSigned<Tag512>>;
using Bytes512 = hn::Vec<hn::Repartition<std::uint8_t, Tag512>>;

/// sum + products of unsigned bytes and signed ones, four neighbours to a lane.
HWY_INLINE Int512 dot_bytes_vnni(Int512 sum, Bytes512 x, const std::int8_t (&c)[64]) {
  asm("vpdpbusd %2, %1, %0" : "+v"(sum.raw) : "v"(x.raw), "m"(c));
  return sum;
}

/// One row of coefficients for kVectors · 64 channels: each is 256 · high + low, times its scale.
template <int kVectors>
struct IntegerCoefficients {
  alignas(64) std::int8_t centre_high[kVectors][64];
  alignas(64) std::int8_t centre_low[kVectors][64];
  alignas(64) std::int8_t half_high[kVectors][64];
  alignas(64) std::int8_t half_low[kVectors][64];
  /// Centres are read as unsigned, 128 too great: sums start with what that adds.
  alignas(64) std::int32_t start_high[kVectors][16];
  alignas(64) std::int32_t start_low[kVectors][16];
  alignas(64) float scale[kVectors][16];
};

/// Greatest integer of a coefficient, whose upper byte then is at most 127.
inline constexpr float kGreatestCoefficient = 32639.0F;

/// coefficients: [2, kVectors · 64]. An error of at most 0.51 · greatest / 32767 for each block, as
/// rounding_margin.h counts on; blocks that are not finite get a NaN scale.
template <int kVectors>
HWY_INLINE void prepare_coefficients(const float* HWY_RESTRICT coefficients,
                                     IntegerCoefficients<kVectors>& to) {
  const Tag512 d;
  const hn::RebindToSigned<Tag512> d32;
  const hn::Rebind<std::int8_t, Tag512> d8;
  const hn::Repartition<std::uint8_t, Tag512> bytes;
  constexpr int kLength = 64 * kVectors;
  for (int block = 0; block < 2 * kVectors; ++block) {
    const int v = block / 2;
    const int first = block % 2 * kScaleBlock;  // in the vector
    const auto load = [&](int i) HWY_ATTR {     // two vectors of centres, two of half-widths
      return hn::LoadU(d, coefficients + i / 2 * kLength + block * kScaleBlock + i % 2 * 16);
    };
    auto greatest = hn::Zero(d);
    auto total = hn::Zero(d);  // NaN or infinite if the block holds such a number
    for (int i = 0; i < 4; ++i) {
      greatest = hn::Max(greatest, hn::Abs(load(i)));
      total = hn::Add(total, hn::Abs(load(i)));
    }
    const float sum = hn::GetLane(hn::SumOfLanes(d, total));
    const bool finite = sum <= std::numeric_limits<float>::max();
    const float scale = hn::GetLane(hn::MaxOfLanes(d, greatest)) / kGreatestCoefficient;
    // A scale that underflows leaves zeros, and the block adds less than a float can hold.
    const float inverse = finite && scale > 1e-36F ? 1.0F / scale : 0.0F;
    for (int i = 0; i < 4; ++i) {
      const auto x = finite ? load(i) : hn::Zero(d);
      const auto integer = hn::NearestInt(hn::Mul(x, hn::Set(d, inverse)));
      const auto high = hn::ShiftRight<8>(hn::Add(integer, hn::Set(d32, 128)));
      const auto low = hn::Sub(integer, hn::ShiftLeft<8>(high));
      const int at = first + i % 2 * 16;
      hn::StoreU(hn::DemoteTo(d8, high), d8, (i < 2 ? to.centre_high : to.half_high)[v] + at);
      hn::StoreU(hn::DemoteTo(d8, low), d8, (i < 2 ? to.centre_low : to.half_low)[v] + at);
    }
    for (int lane = 0; lane < 8; ++lane) {
      to.scale[v][first / 4 + lane] = finite ? scale : sum - sum;
    }
  }
  const auto offset = hn::Set(bytes, std::uint8_t{128});
  for (int v = 0; v < kVectors; ++v) {
    const auto zero = hn::Zero(d32);
    hn::Store(hn::Neg(dot_bytes_vnni(zero, offset, to.centre_high[v])), d32, to.start_high[v]);
    hn::Store(hn::Neg(dot_bytes_vnni(zero, offset, to.centre_low[v])), d32, to.start_low[v]);
  }
}

/// The scales of a summary, and where in them each lane finds its own.
template <int kVectors>
struct LaneScales {
  using Indices =
      decltype(hn::SetTableIndices(Tag512(), static_cast<const std::int32_t*>(nullptr)));

  HWY_INLINE LaneScales() {
    for (int v = 0; v < kVectors; ++v) {
      alignas(64) std::int32_t at[16];
      for (int lane = 0; lane < 16; ++lane) at[lane] = 2 * v + lane / 8;
      centre[v] = hn::SetTableIndices(Tag512(), at);
      for (std::int32_t& index : at) index += 2 * kVectors;
      half[v] = hn::SetTableIndices(Tag512(), at);
    }
  }

  /// [2, 2 · kVectors] scales, those of centres divided by 8: the upper bits of a byte are 8 times
  /// the centre.
  HWY_INLINE hn::Vec<Tag512> load(const std::int8_t* summary) const {
    const Tag512 d;
    const hn::Rebind<std::uint16_t, Tag512> d16;
    const hn::Rebind<hwy::float16_t, Tag512> df16;
    const auto* const scales = reinterpret_cast<const std::uint16_t*>(summary + 64 * kVectors);
    const auto bits = hn::MaskedLoad(hn::FirstN(d16, 4 * kVectors), d16, scales);
    const auto eighth =
        hn::IfThenElse(hn::FirstN(d, 2 * kVectors), hn::Set(d, 0.125F), hn::Set(d, 1.0F));
    return hn::Mul(hn::PromoteTo(d, hn::BitCast(df16, bits)), eighth);
  }

  Indices centre[kVectors];
  Indices half[kVectors];
};

/// score_pages_q4 for kVectors · 64 channels.
template <int kRows, int kPages, int kVectors>
HWY_INLINE void score_pages_q4_vnni(const ScoreArgs& args,
                                    const IntegerCoefficients<kVectors>* HWY_RESTRICT rows,
                                    const LaneScales<kVectors>& lanes, std::int32_t first,
                                    std::int32_t valid, std::int32_t last,
                                    float* HWY_RESTRICT scores) {
  const Tag512 d;
  using V = hn::Vec<Tag512>;
  const hn::RebindToSigned<Tag512> d32;
  const hn::Repartition<std::uint8_t, Tag512> bytes;
  V sum[kRows][kPages];
  QUEST_UNROLL
  for (int p = 0; p < kPages; ++p) {
    const std::int8_t* summary = summary_of<Q4>(args, first + HWY_MIN(p, valid - 1));
    const std::int8_t* ahead = summary_of<Q4>(args, HWY_MIN(first + kQ4PagesAhead + p, last));
    for (int v = 0; v < kVectors; ++v) __builtin_prefetch(ahead + 64 * v);
    QUEST_UNROLL
    for (int r = 0; r < kRows; ++r) sum[r][p] = hn::Zero(d);
    const V scales = lanes.load(summary);
    for (int v = 0; v < kVectors; ++v) {
      const auto both = hn::LoadU(bytes, reinterpret_cast<const std::uint8_t*>(summary) + 64 * v);
      const auto halves = hn::And(both, hn::Set(bytes, std::uint8_t{7}));
      const auto centres = hn::Xor(hn::And(both, hn::Set(bytes, std::uint8_t{0xF8})),
                                   hn::Set(bytes, std::uint8_t{0x80}));
      const V centre_scale = hn::TableLookupLanes(scales, lanes.centre[v]);
      const V half_scale = hn::TableLookupLanes(scales, lanes.half[v]);
      QUEST_UNROLL
      for (int r = 0; r < kRows; ++r) {
        const IntegerCoefficients<kVectors>& c = rows[r];
        const auto high = dot_bytes_vnni(hn::Load(d32, c.start_high[v]), centres, c.centre_high[v]);
        const auto low = dot_bytes_vnni(hn::Load(d32, c.start_low[v]), centres, c.centre_low[v]);
        const V centre = hn::ConvertTo(d, hn::Add(hn::ShiftLeft<8>(high), low));
        const auto upper = dot_bytes_vnni(hn::Zero(d32), halves, c.half_high[v]);
        const V half =
            hn::ConvertTo(d, dot_bytes_vnni(hn::ShiftLeft<8>(upper), halves, c.half_low[v]));
        const V box = hn::MulAdd(half, half_scale, hn::Mul(centre, centre_scale));
        sum[r][p] = hn::MulAdd(box, hn::Load(d, c.scale[v]), sum[r][p]);
      }
    }
  }
  store_scores<kRows, kPages>(args, sum, valid, scores + first);
}

template <int kRows, int kVectors>
HWY_NOINLINE void score_rows_q4_vnni(const ScoreArgs& args, const float* coefficients,
                                     float* scores) {
  constexpr int kPages = kRows == 1 ? 8 : 4;
  IntegerCoefficients<kVectors> rows[kRows];
  for (int r = 0; r < kRows; ++r) prepare_coefficients(coefficients + r * 128 * kVectors, rows[r]);
  const LaneScales<kVectors> lanes;
  const std::int32_t end = args.first + args.count;
  for (std::int32_t page = args.first; page < end; page += kPages) {
    score_pages_q4_vnni<kRows, kPages>(args, rows, lanes, page, HWY_MIN(kPages, end - page),
                                       end - 1, scores);
  }
}

template <int kVectors>
HWY_INLINE void score_q4_vnni(const ScoreArgs& args) {
  for_each_row_block<4>(
      args, [](auto rows, const ScoreArgs& a, const float* coefficients, float* scores) HWY_ATTR {
        score_rows_q4_vnni<decltype(rows)::value, kVectors>(a, coefficients, scores);
      });
}

}  // namespace quest::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
// NOLINTEND(bugprone-implicit-widening-of-multiplication-result)

#endif  // HWY_TARGET == HWY_AVX3

#endif
