// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0

// Per-target include guard.
#if defined(QUEST_ATTENTION_CPU_SCORE_Q8_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUEST_ATTENTION_CPU_SCORE_Q8_INL_H_
#undef QUEST_ATTENTION_CPU_SCORE_Q8_INL_H_
#else
#define QUEST_ATTENTION_CPU_SCORE_Q8_INL_H_
#endif

#include "attention/cpu/attend_q8-inl.h"
#include "attention/cpu/kernels.h"
#include "attention/cpu/score-inl.h"
#include "attention/cpu/simd-inl.h"
#include "quest/kv_type.h"

// Offsets here stay inside one page, run or tile; those into the pool are 64-bit.
// NOLINTBEGIN(bugprone-implicit-widening-of-multiplication-result)
HWY_BEFORE_NAMESPACE();
namespace quest::cpu::HWY_NAMESPACE {

/// score_pages for summaries of integers: [2, head_dim], then one f16 scale a block of channels.
template <int kRows, int kPages>
HWY_INLINE void score_pages_q8(const ScoreArgs& args, const float* HWY_RESTRICT coefficients,
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
    const std::int8_t* summary = summary_of<Q8>(args, first + HWY_MIN(p, valid - 1));
    const std::int8_t* ahead =
        summary_of<Q8>(args, HWY_MIN(first + 2 * kScorePagesAhead + p, last));
    for (std::int32_t i = 0; i < 2 * head_dim; i += 64) __builtin_prefetch(ahead + i);
    QUEST_UNROLL
    for (int r = 0; r < kRows; ++r) sum[r][p] = hn::Zero(d);
    const auto* scales = reinterpret_cast<const std::uint16_t*>(summary + 2 * head_dim);
    for (std::int32_t begin = 0, block = 0; begin < head_dim; begin += kScaleBlock, ++block) {
      const std::int32_t end = HWY_MIN(begin + kScaleBlock, head_dim);
      V part[kRows];
      QUEST_UNROLL
      for (int r = 0; r < kRows; ++r) part[r] = hn::Zero(d);
      for (std::int32_t j = begin; j < end; j += kLanes) {
        const V minimum = load_integers(d, summary + j);
        const V maximum = load_integers(d, summary + head_dim + j);
        QUEST_UNROLL
        for (int r = 0; r < kRows; ++r) {
          const float* low = coefficients + r * 2 * head_dim + j;
          part[r] = hn::MulAdd(hn::LoadU(d, low), minimum, part[r]);
          part[r] = hn::MulAdd(hn::LoadU(d, low + head_dim), maximum, part[r]);
        }
      }
      const V scale = hn::Set(d, scale_at(scales, block));
      QUEST_UNROLL
      for (int r = 0; r < kRows; ++r) sum[r][p] = hn::MulAdd(scale, part[r], sum[r][p]);
    }
  }
  store_scores<kRows, kPages>(args, sum, valid, scores + first);
}

template <int kRows>
void score_rows_q8(const ScoreArgs& args, const float* coefficients, float* scores) {
  constexpr int kPages = (kRows == 1 && kRegisters == 32) ? 8 : 4;
  const std::int32_t end = args.first + args.count;
  for (std::int32_t page = args.first; page < end; page += kPages) {
    score_pages_q8<kRows, kPages>(args, coefficients, page, HWY_MIN(kPages, end - page), end - 1,
                                  scores);
  }
}

HWY_INLINE void score_q8(const ScoreArgs& args) {
  for_each_row_block<kRegisters == 32 ? 4 : 2>(
      args, [](auto rows, const ScoreArgs& a, const float* coefficients, float* scores)
                HWY_ATTR { score_rows_q8<decltype(rows)::value>(a, coefficients, scores); });
}

}  // namespace quest::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
// NOLINTEND(bugprone-implicit-widening-of-multiplication-result)

#endif
