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
#include "attention/cpu/score_q8-inl.h"

HWY_BEFORE_NAMESPACE();
namespace quest::cpu::HWY_NAMESPACE {

/// Of channels [begin, end) of one page: the minimum is not above the maximum, so max(M, -m) is
/// the greatest magnitude.
template <class Format>
HWY_INLINE void fold_magnitudes(const typename Format::Element* HWY_RESTRICT summary,
                                std::int32_t head_dim, float* HWY_RESTRICT magnitudes) {
  const hn::ScalableTag<float> d;
  constexpr auto kLanes = static_cast<std::int32_t>(hn::MaxLanes(d));
  for (std::int32_t j = 0; j < head_dim; j += kLanes) {
    auto low = hn::Zero(d);
    auto high = low;
    if constexpr (std::is_same_v<Format, Q8>) {
      // Lanes are at most a block, and blocks are whole vectors.
      const auto* scales =
          reinterpret_cast<const std::uint16_t*>(summary + std::ptrdiff_t{2} * head_dim);
      const auto scale = hn::Set(d, scale_at(scales, j / kScaleBlock));
      low = hn::Mul(load_integers(d, summary + j), scale);
      high = hn::Mul(load_integers(d, summary + head_dim + j), scale);
    } else {
      low = load_wide(d, Format(), summary + j);
      high = load_wide(d, Format(), summary + head_dim + j);
    }
    const auto most = hn::Max(high, hn::Neg(low));
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
