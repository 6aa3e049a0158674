// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0

// Per-target include guard.
#if defined(QUEST_ATTENTION_CPU_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUEST_ATTENTION_CPU_SIMD_INL_H_
#undef QUEST_ATTENTION_CPU_SIMD_INL_H_
#else
#define QUEST_ATTENTION_CPU_SIMD_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <limits>

// Loops over register blocks must vanish, or the blocks live in memory. Under a sanitizer, which
// checks every step of every unrolled loop, that would only cost minutes of compilation.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define QUEST_UNROLL
#else
#define QUEST_UNROLL _Pragma("GCC unroll 16")
#endif

HWY_BEFORE_NAMESPACE();
namespace quest::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

inline constexpr float kNegInf = -std::numeric_limits<float>::infinity();

/// Vector registers to plan register blocks by.
inline constexpr int kRegisters = (HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_EMU128) ? 16 : 32;

/// Storage formats as the loads see them.
struct F32 {
  using Element = float;
};
struct F16 {
  using Element = std::uint16_t;
};
struct BF16 {
  using Element = std::uint16_t;
};
/// Integers with scales after them; its kernels are in the *_q8-inl.h files.
struct Q8 {
  using Element = std::int8_t;
};
/// Centre and half-width in one byte (score_q4-inl.h); summaries only.
struct Q4 {
  using Element = std::int8_t;
};

template <class D>
HWY_INLINE hn::Vec<D> load_wide(D d, F32 /*format*/, const float* p) {
  return hn::LoadU(d, p);
}

template <class D>
HWY_INLINE hn::Vec<D> load_wide(D d, F16 /*format*/, const std::uint16_t* p) {
  const hn::Rebind<std::uint16_t, D> d16;
  const hn::Rebind<hwy::float16_t, D> df16;
  const auto bits = hn::LoadU(d16, p);
  const auto number = hn::PromoteTo(d, hn::BitCast(df16, bits));
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
  // Highway's portable conversion takes infinities and NaN for numbers.
  const hn::RebindToUnsigned<D> d32;
  const auto wide = hn::PromoteTo(d32, bits);
  const auto exponent = hn::Set(d32, 0x7C00U);
  const auto sign = hn::ShiftLeft<16>(hn::And(wide, hn::Set(d32, 0x8000U)));
  const auto fraction = hn::ShiftLeft<13>(hn::And(wide, hn::Set(d32, 0x3FFU)));
  const auto special = hn::Or(hn::Or(sign, fraction), hn::Set(d32, 0x7F800000U));
  const auto is_special = hn::Eq(hn::And(wide, exponent), exponent);
  return hn::IfThenElse(hn::RebindMask(d, is_special), hn::BitCast(d, special), number);
#else
  return number;
#endif
}

template <class D>
HWY_INLINE hn::Vec<D> load_wide(D d, BF16 /*format*/, const std::uint16_t* p) {
  const hn::Rebind<std::uint16_t, D> d16;
  const hn::RebindToUnsigned<D> d32;
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(d32, hn::LoadU(d16, p))));
}

/// Asks for the `kBytes` from p on, into the second-level cache: measured faster than filling the
/// first, whose line buffers the arithmetic needs.
template <std::size_t kBytes>
HWY_INLINE void prefetch_lines(const std::byte* p) {
  QUEST_UNROLL
  for (std::size_t i = 0; i < kBytes; i += 64) __builtin_prefetch(p + i, 0, 2);
}

/// Greater of t and `low`, NaN where t is NaN.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V raise_to(D d, V t, float low) {
#if HWY_TARGET == HWY_SCALAR
  return hn::IfThenElse(hn::Lt(t, hn::Set(d, low)), hn::Set(d, low), t);
#else
  return hn::Max(hn::Set(d, low), t);  // in this order x86 lets a NaN in t through
#endif
}

/// 2^t for t ≤ 0 or barely above, relative error about 1e-7; exactly 1 at 0. -inf and everything
/// below -126.5 give 0, NaN stays.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V exp2_not_positive(D d, V t) {
  const hn::RebindToUnsigned<D> du;
  // Adding 1.5·2^23 rounds to an integer n, and the 127 on top leaves n's exponent field in the
  // lowest bits. At n = -127 that field is 0, and so is the result.
  const V magic = hn::Set(d, 12582912.0F + 127.0F);
  const V clamped = raise_to(d, t, -127.0F);
  const V shifted = hn::Add(clamped, magic);
  const V f = hn::Sub(clamped, hn::Sub(shifted, magic));
  // Minimax polynomial of 2^f on [-0.5, 0.5] with constant term 1; relative error 3e-9.
  V y = hn::Set(d, 0.00015594678F);
  y = hn::MulAdd(y, f, hn::Set(d, 0.0013406643F));
  y = hn::MulAdd(y, f, hn::Set(d, 0.009617693F));
  y = hn::MulAdd(y, f, hn::Set(d, 0.055503104F));
  y = hn::MulAdd(y, f, hn::Set(d, 0.24022653F));
  y = hn::MulAdd(y, f, hn::Set(d, 0.69314724F));
  y = hn::MulAdd(y, f, hn::Set(d, 1.0F));
  return hn::Mul(y, hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(du, shifted))));
}

HWY_INLINE float exp2_not_positive(float t) {
  const hn::CappedTag<float, 1> d1;
  return hn::GetLane(exp2_not_positive(d1, hn::Set(d1, t)));
}

inline constexpr float kLog2E = 1.44269504F;

/// Softmax of one head so far, in powers of two: one multiplication turns q·k into an exponent, and
/// a logit and the maximum go through the same rounding.
struct RunningSoftmax {
  float greatest = kNegInf;  ///< q·k, not scaled
  float max = kNegInf;       ///< greatest · scale · log2 e, rounded; weights are 2^(… - max)
  float sum = 0;

  /// Weights are off from exp(logit - greatest logit) by what rounding `max` left. Between the
  /// runs of one list that cancels; partial results that others made need this factor.
  float to_natural(float scale) const {
    if (max == kNegInf) return 1;
    const hn::CappedTag<float, 1> d1;
    const auto rest =
        hn::MulSub(hn::Set(d1, greatest), hn::Set(d1, scale * kLog2E), hn::Set(d1, max));
    return exp2_not_positive(-hn::GetLane(rest));
  }
};

/// Greatest of x[0 … count), count a whole number of vectors.
template <class D>
HWY_INLINE float greatest(D d, const float* HWY_RESTRICT x, std::int32_t count) {
  using V = hn::Vec<D>;
  constexpr std::int32_t kLanes = static_cast<std::int32_t>(hn::MaxLanes(D()));
  // Two chains: the latency of one would be most of the time.
  V top0 = hn::Set(d, kNegInf);
  V top1 = top0;
  std::int32_t t = 0;
  for (; t + 2 * kLanes <= count; t += 2 * kLanes) {
    top0 = hn::Max(top0, hn::LoadU(d, x + t));
    top1 = hn::Max(top1, hn::LoadU(d, x + t + kLanes));
  }
  if (t < count) top0 = hn::Max(top0, hn::LoadU(d, x + t));
  return hn::GetLane(hn::MaxOfLanes(d, hn::Max(top0, top1)));
}

/// Replaces x[0 … count) = q·k by the softmax weights exp(scale · x - new maximum), adds them to
/// the running sum and returns the factor for everything accumulated before. The entries from
/// count to the next whole vector become 0, so the buffer must reach that far. scale > 0.
HWY_INLINE float fold_softmax(RunningSoftmax& state, float* HWY_RESTRICT x, std::int32_t count,
                              float scale) {
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  constexpr std::int32_t kLanes = static_cast<std::int32_t>(hn::MaxLanes(d));
  const std::int32_t padded = (count + kLanes - 1) / kLanes * kLanes;
  for (std::int32_t t = count; t < padded; ++t) x[t] = kNegInf;

  const float factor = scale * kLog2E;
  state.greatest = HWY_MAX(state.greatest, greatest(d, x, padded));
  const float new_max = state.greatest * factor;
  // All logits -inf: subtracting -inf would make NaN of weights that are 0.
  const float shift = new_max == kNegInf ? 0.0F : new_max;
  const V factors = hn::Set(d, factor);
  const V shifts = hn::Set(d, shift);
  V total = hn::Zero(d);
  for (std::int32_t t = 0; t < padded; t += kLanes) {
    const V p = exp2_not_positive(d, hn::MulSub(hn::LoadU(d, x + t), factors, shifts));
    hn::StoreU(p, d, x + t);
    total = hn::Add(total, p);
  }
  const float rescale = state.max == new_max ? 1.0F : exp2_not_positive(state.max - shift);
  state.max = new_max;
  state.sum = state.sum * rescale + hn::GetLane(hn::SumOfLanes(d, total));
  return rescale;
}

}  // namespace quest::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
