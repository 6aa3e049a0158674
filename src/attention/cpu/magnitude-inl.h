// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0

// Per-target include guard.
#if defined(QUEST_ATTENTION_CPU_MAGNITUDE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUEST_ATTENTION_CPU_MAGNITUDE_INL_H_
#undef QUEST_ATTENTION_CPU_MAGNITUDE_INL_H_
#else
#define QUEST_ATTENTION_CPU_MAGNITUDE_INL_H_
#endif

#include <type_traits>

#include "attention/cpu/kernels.h"
#include "attention/cpu/score-inl.h"
#include "attention/cpu/score_q4-inl.h"
#include "attention/cpu/score_q8-inl.h"

HWY_BEFORE_NAMESPACE();
namespace quest::cpu::HWY_NAMESPACE {

/// Of channels [begin, end) of one page: the minimum is not above the maximum, so max(M, -m) is
/// the greatest magnitude, and so is |c| + r.
template <class Format>
HWY_INLINE void fold_magnitudes(const typename Format::Element* HWY_RESTRICT summary,
                                std::int32_t head_dim, float* HWY_RESTRICT magnitudes) {
  const hn::ScalableTag<float> d;
  constexpr auto kLanes = static_cast<std::int32_t>(hn::MaxLanes(d));
  for (std::int32_t j = 0; j < head_dim; j += kLanes) {
    auto most = hn::Zero(d);
    if constexpr (std::is_same_v<Format, Q4>) {
      const BoxScales scales(d, summary, head_dim, j / kScaleBlock);
      const auto box = load_box(d, summary + j);
      most = hn::MulAdd(hn::Abs(box.centre), scales.centre, hn::Mul(box.half, scales.half));
    } else if constexpr (std::is_same_v<Format, Q8>) {
      // Lanes are at most a block, and blocks are whole vectors.
      const auto* scales =
          reinterpret_cast<const std::uint16_t*>(summary + std::ptrdiff_t{2} * head_dim);
      const auto scale = hn::Set(d, scale_at(scales, j / kScaleBlock));
      const auto low = hn::Mul(load_integers(d, summary + j), scale);
      const auto high = hn::Mul(load_integers(d, summary + head_dim + j), scale);
      most = hn::Max(high, hn::Neg(low));
    } else {
      const auto low = load_wide(d, Format(), summary + j);
      const auto high = load_wide(d, Format(), summary + head_dim + j);
      most = hn::Max(high, hn::Neg(low));
    }
    hn::StoreU(hn::Max(hn::LoadU(d, magnitudes + j), most), d, magnitudes + j);
  }
}

template <class Format>
void magnitudes(const MagnitudeArgs& args) {
  for (std::int32_t p = args.first; p < args.first + args.count; ++p) {
    const auto* summary = reinterpret_cast<const typename Format::Element*>(
        args.summaries + std::int64_t{args.table[p]} * args.stride);
    fold_magnitudes<Format>(summary, args.head_dim, args.magnitudes);
  }
}

}  // namespace quest::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
