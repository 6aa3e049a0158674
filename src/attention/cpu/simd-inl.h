// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0

// Per-target include guard.
#if defined(QUEST_ATTENTION_CPU_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUEST_ATTENTION_CPU_SIMD_INL_H_
#undef QUEST_ATTENTION_CPU_SIMD_INL_H_
#else
#define QUEST_ATTENTION_CPU_SIMD_INL_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <limits>

// Loops over register blocks must vanish, or the blocks live in memory.
#define QUEST_UNROLL _Pragma("GCC unroll 16")

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

template <class D>
HWY_INLINE hn::Vec<D> load_wide(D d, F32 /*format*/, const float* p) {
  return hn::LoadU(d, p);
}

template <class D>
HWY_INLINE hn::Vec<D> load_wide(D d, F16 /*format*/, const std::uint16_t* p) {
  const hn::Rebind<std::uint16_t, D> d16;
  const hn::Rebind<hwy::float16_t, D> df16;
  return hn::PromoteTo(d, hn::BitCast(df16, hn::LoadU(d16, p)));
}

template <class D>
HWY_INLINE hn::Vec<D> load_wide(D d, BF16 /*format*/, const std::uint16_t* p) {
  const hn::Rebind<std::uint16_t, D> d16;
  const hn::RebindToUnsigned<D> d32;
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(d32, hn::LoadU(d16, p))));
}

/// Touches the `kBytes` from p on, one cache line after the other.
template <std::size_t kBytes>
HWY_INLINE void prefetch_lines(const std::byte* p) {
  QUEST_UNROLL
  for (std::size_t i = 0; i < kBytes; i += 64) hwy::Prefetch(p + i);
}

/// exp(x) for x ≤ 0, relative error about 1e-7; -inf and everything below -87.3 give 0, NaN stays.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V exp_not_positive(D d, V x) {
  const hn::RebindToSigned<D> di;
  // The order of the operands lets a NaN through.
  const V clamped = hn::Max(hn::Set(d, -87.5F), x);
  const V n = hn::Round(hn::Mul(clamped, hn::Set(d, 1.44269504F)));
  // ln 2 in two parts, the first short enough that n times it is exact.
  V r = hn::NegMulAdd(n, hn::Set(d, 0.693145752F), clamped);
  r = hn::NegMulAdd(n, hn::Set(d, 1.42860677e-6F), r);
  // Taylor terms up to r^7 on |r| ≤ ln 2 / 2: the rest is below half a rounding.
  V y = hn::Set(d, 1.0F / 5040);
  y = hn::MulAdd(y, r, hn::Set(d, 1.0F / 720));
  y = hn::MulAdd(y, r, hn::Set(d, 1.0F / 120));
  y = hn::MulAdd(y, r, hn::Set(d, 1.0F / 24));
  y = hn::MulAdd(y, r, hn::Set(d, 1.0F / 6));
  y = hn::MulAdd(y, r, hn::Set(d, 0.5F));
  y = hn::MulAdd(y, r, hn::Set(d, 1.0F));
  y = hn::MulAdd(y, r, hn::Set(d, 1.0F));
  const auto exponent = hn::ShiftLeft<23>(hn::Add(hn::ConvertTo(di, n), hn::Set(di, 127)));
  y = hn::Mul(y, hn::BitCast(d, exponent));
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -87.3F)), y);
}

HWY_INLINE float exp_not_positive(float x) {
  const hn::CappedTag<float, 1> d1;
  return hn::GetLane(exp_not_positive(d1, hn::Set(d1, x)));
}

/// What the logits of one head in one run do to its running maximum and sum.
struct RunningSoftmax {
  float max = kNegInf;
  float sum = 0;
};

/// Replaces `logits[0 … count)` by exp(logit - new maximum), adds them to the running sum and
/// returns the factor for everything accumulated before. The entries from count to the next whole
/// vector are overwritten with 0, so the buffer must reach that far. `scale` is applied first.
HWY_INLINE float fold_softmax(RunningSoftmax& state, float* HWY_RESTRICT logits, std::int32_t count,
                              float scale) {
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  constexpr std::int32_t kLanes = static_cast<std::int32_t>(hn::MaxLanes(d));
  const std::int32_t padded = (count + kLanes - 1) / kLanes * kLanes;
  for (std::int32_t t = count; t < padded; ++t) logits[t] = kNegInf;

  const V factor = hn::Set(d, scale);
  V top = hn::Set(d, kNegInf);
  for (std::int32_t t = 0; t < padded; t += kLanes) {
    // Padding stays -inf because scale is positive.
    const V x = hn::Mul(hn::LoadU(d, logits + t), factor);
    hn::StoreU(x, d, logits + t);
    top = hn::Max(top, x);
  }
  const float new_max = HWY_MAX(state.max, hn::GetLane(hn::MaxOfLanes(d, top)));
  // All logits -inf: subtracting -inf would make NaN of weights that are 0.
  const float shift = new_max == kNegInf ? 0.0F : new_max;
  const V shifts = hn::Set(d, shift);
  V total = hn::Zero(d);
  for (std::int32_t t = 0; t < padded; t += kLanes) {
    const V p = exp_not_positive(d, hn::Sub(hn::LoadU(d, logits + t), shifts));
    hn::StoreU(p, d, logits + t);
    total = hn::Add(total, p);
  }
  const float rescale = state.max == new_max ? 1.0F : exp_not_positive(state.max - shift);
  state.max = new_max;
  state.sum = state.sum * rescale + hn::GetLane(hn::SumOfLanes(d, total));
  return rescale;
}

}  // namespace quest::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
