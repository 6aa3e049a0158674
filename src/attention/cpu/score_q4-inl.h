// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0

// Per-target include guard.
#if defined(QUEST_ATTENTION_CPU_SCORE_Q4_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUEST_ATTENTION_CPU_SCORE_Q4_INL_H_
#undef QUEST_ATTENTION_CPU_SCORE_Q4_INL_H_
#else
#define QUEST_ATTENTION_CPU_SCORE_Q4_INL_H_
#endif

#include "attention/cpu/attend_q8-inl.h"
#include "attention/cpu/kernels.h"
#include "attention/cpu/score-inl.h"
#include "attention/cpu/score_q4_vnni-inl.h"
#include "attention/cpu/simd-inl.h"
#include "attention/cpu/vnni.h"
#include "quest/kv_type.h"

// Offsets here stay inside one page, run or tile; those into the pool are 64-bit.
// NOLINTBEGIN(bugprone-implicit-widening-of-multiplication-result)
HWY_BEFORE_NAMESPACE();
namespace quest::cpu::HWY_NAMESPACE {

/// Channels of a q4 summary as numbers, scales apart. Centres are 8 times theirs: what the bits of
/// the byte are without those of the half-width.
template <class V>
struct BoxVectors {
  V centre;
  V half;
};

template <class D>
HWY_INLINE BoxVectors<hn::Vec<D>> load_box(D d, const std::int8_t* p) {
  const hn::RebindToSigned<D> d32;
  const hn::Rebind<std::int8_t, D> d8;
  const auto both = hn::PromoteTo(d32, hn::LoadU(d8, p));
  return {hn::ConvertTo(d, hn::And(both, hn::Set(d32, -8))),
          hn::ConvertTo(d, hn::And(both, hn::Set(d32, 7)))};
}

/// Scales of one block for the numbers of load_box; dividing by 8 is exact.
template <class V>
struct BoxScales {
  template <class D>
  HWY_INLINE BoxScales(D d, const std::int8_t* summary, std::int32_t head_dim, std::int32_t block) {
    const auto* scales = reinterpret_cast<const std::uint16_t*>(summary + head_dim);
    const std::int32_t blocks = (head_dim + kScaleBlock - 1) / kScaleBlock;
    centre = hn::Set(d, 0.125F * scale_at(scales, block));
    half = hn::Set(d, scale_at(scales, blocks + block));
  }

  V centre;
  V half;
};

template <class D>
BoxScales(D, const std::int8_t*, std::int32_t, std::int32_t) -> BoxScales<hn::Vec<D>>;

/// score_pages for summaries of one byte a channel, in floats: [head_dim], then f16 scales of
/// centres and half-widths, one of either a block of channels.
template <int kRows, int kPages>
HWY_INLINE void score_pages_q4(const ScoreArgs& args, const float* HWY_RESTRICT coefficients,
                               std::int32_t first, std::int32_t valid, std::int32_t last,
                               float* HWY_RESTRICT scores) {
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  constexpr int kLanes = static_cast<int>(hn::MaxLanes(d));
  const std::int32_t head_dim = args.head_dim;
  V sum[kRows][kPages];
  // Page after page, so that memory is read in the order of its addresses.
  QUEST_UNROLL
  for (int p = 0; p < kPages; ++p) {
    const std::int8_t* summary = summary_of<Q4>(args, first + HWY_MIN(p, valid - 1));
    const std::int8_t* ahead = summary_of<Q4>(args, HWY_MIN(first + kQ4PagesAhead + p, last));
    for (std::int32_t i = 0; i < head_dim; i += 64) __builtin_prefetch(ahead + i);
    QUEST_UNROLL
    for (int r = 0; r < kRows; ++r) sum[r][p] = hn::Zero(d);
    for (std::int32_t begin = 0, block = 0; begin < head_dim; begin += kScaleBlock, ++block) {
      const std::int32_t end = HWY_MIN(begin + kScaleBlock, head_dim);
      V centres[kRows];
      V halves[kRows];
      QUEST_UNROLL
      for (int r = 0; r < kRows; ++r) centres[r] = halves[r] = hn::Zero(d);
      for (std::int32_t j = begin; j < end; j += kLanes) {
        const BoxVectors<V> box = load_box(d, summary + j);
        QUEST_UNROLL
        for (int r = 0; r < kRows; ++r) {
          const float* row = coefficients + r * 2 * head_dim + j;
          centres[r] = hn::MulAdd(hn::LoadU(d, row), box.centre, centres[r]);
          halves[r] = hn::MulAdd(hn::LoadU(d, row + head_dim), box.half, halves[r]);
        }
      }
      const BoxScales<V> scales(d, summary, head_dim, block);
      QUEST_UNROLL
      for (int r = 0; r < kRows; ++r) {
        sum[r][p] = hn::MulAdd(scales.centre, centres[r], sum[r][p]);
        sum[r][p] = hn::MulAdd(scales.half, halves[r], sum[r][p]);
      }
    }
  }
  store_scores<kRows, kPages>(args, sum, valid, scores + first);
}

template <int kRows>
void score_rows_q4(const ScoreArgs& args, const float* coefficients, float* scores) {
  constexpr int kPages = (kRows == 1 && kRegisters == 32) ? 8 : 4;
  const std::int32_t end = args.first + args.count;
  for (std::int32_t page = args.first; page < end; page += kPages) {
    score_pages_q4<kRows, kPages>(args, coefficients, page, HWY_MIN(kPages, end - page), end - 1,
                                  scores);
  }
}

HWY_INLINE void score_q4(const ScoreArgs& args) {
#if HWY_TARGET == HWY_AVX3
  if (uses_vnni()) {
    if (args.head_dim == 64) return score_q4_vnni<1>(args);
    if (args.head_dim == 128) return score_q4_vnni<2>(args);
    if (args.head_dim == 256) return score_q4_vnni<4>(args);
  }
#endif
  for_each_row_block<kRegisters == 32 ? 4 : 2>(
      args, [](auto rows, const ScoreArgs& a, const float* coefficients, float* scores)
                HWY_ATTR { score_rows_q4<decltype(rows)::value>(a, coefficients, scores); });
}

}  // namespace quest::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
// NOLINTEND(bugprone-implicit-widening-of-multiplication-result)

#endif
