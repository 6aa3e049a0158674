// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0

// Per-target include guard.
#if defined(QUEST_ATTENTION_CPU_SPLIT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUEST_ATTENTION_CPU_SPLIT_INL_H_
#undef QUEST_ATTENTION_CPU_SPLIT_INL_H_
#else
#define QUEST_ATTENTION_CPU_SPLIT_INL_H_
#endif

#include "attention/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace quest::cpu::HWY_NAMESPACE {

/// bf16 parts of which a stored number is made: hi, and lo = the rest. f16 is exact in two.
template <class Format>
inline constexpr int kParts = 2;
template <>
inline constexpr int kParts<BF16> = 1;

/// Whether every number that was split had finite parts.
template <class V>
class FiniteCheck {
 public:
  template <class D>
  explicit FiniteCheck(D d) : sum_(hn::Zero(d)) {}
  /// 0 · rest is NaN where the number was infinite, NaN, or too large for bf16.
  template <class D>
  void see(D d, V rest) {
    sum_ = hn::MulAdd(rest, hn::Zero(d), sum_);
  }
  template <class D>
  bool finite(D d) const {
    return hn::AllTrue(d, hn::Eq(sum_, sum_));
  }

 private:
  V sum_;
};

/// For numbers that are known to be finite.
struct NoCheck {
  template <class D, class V>
  void see(D /*d*/, V /*rest*/) {}
};

/// x rounded to bf16, still in 32 bits.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V round_to_bf16(D d, V x) {
  const hn::RebindToUnsigned<D> du;
  const auto bits = hn::Add(hn::BitCast(du, x), hn::Set(du, 0x8000U));
  return hn::BitCast(d, hn::And(bits, hn::Set(du, 0xFFFF0000U)));
}

/// Upper halves of `even` in the lower half of each lane, those of `odd` in the upper.
template <class D, class V = hn::Vec<D>>
HWY_INLINE hn::Vec<hn::RebindToUnsigned<D>> pair_up(D /*d*/, V even, V odd) {
  const hn::RebindToUnsigned<D> du;
  return hn::IfVecThenElse(hn::Set(du, 0xFFFF0000U), hn::BitCast(du, odd),
                           hn::ShiftRight<16>(hn::BitCast(du, even)));
}

/// Stores the bf16 parts of two vectors as pairs: hi at `to`, lo at `to_lo`.
template <int kPartCount, class D, class Check, class V = hn::Vec<D>>
HWY_INLINE void split_pairs(D d, V even, V odd, std::uint32_t* HWY_RESTRICT to,
                            std::uint32_t* HWY_RESTRICT to_lo, Check& check) {
  const hn::RebindToUnsigned<D> du;
  if constexpr (kPartCount == 1) {
    hn::StoreU(pair_up(d, even, odd), du, to);
    check.see(d, even);
    check.see(d, odd);
  } else {
    const V even_hi = round_to_bf16(d, even);
    const V odd_hi = round_to_bf16(d, odd);
    const V even_lo = hn::Sub(even, even_hi);
    const V odd_lo = hn::Sub(odd, odd_hi);
    hn::StoreU(pair_up(d, even_hi, odd_hi), du, to);
    // The mask of pair_up drops what rounding leaves below.
    const auto half = hn::Set(du, 0x8000U);
    const V even_round = hn::BitCast(d, hn::Add(hn::BitCast(du, even_lo), half));
    const V odd_round = hn::BitCast(d, hn::Add(hn::BitCast(du, odd_lo), half));
    hn::StoreU(pair_up(d, even_round, odd_round), du, to_lo);
    check.see(d, even_lo);
    check.see(d, odd_lo);
  }
}

}  // namespace quest::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
