// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0

// Per-target include guard.
#if defined(QUEST_ATTENTION_CPU_SCORE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUEST_ATTENTION_CPU_SCORE_INL_H_
#undef QUEST_ATTENTION_CPU_SCORE_INL_H_
#else
#define QUEST_ATTENTION_CPU_SCORE_INL_H_
#endif

#include <type_traits>

#include "attention/cpu/kernels.h"
#include "attention/cpu/simd-inl.h"

// Offsets here stay inside one page, run or tile; those into the pool are 64-bit.
// NOLINTBEGIN(bugprone-implicit-widening-of-multiplication-result)
HWY_BEFORE_NAMESPACE();
namespace quest::cpu::HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR

/// Stores the sums of the lanes of four vectors to `out`: one lane is its own sum.
template <class D, class V = hn::Vec<D>>
HWY_INLINE void store_sums_of_four(D d, V a, V b, V c, V e, float* out) {
  hn::StoreU(a, d, out);
  hn::StoreU(b, d, out + 1);
  hn::StoreU(c, d, out + 2);
  hn::StoreU(e, d, out + 3);
}

#else

/// Adds upper halves to lower halves until one 128-bit block is left.
template <class D>
HWY_INLINE hn::Vec<hn::CappedTag<float, 4>> sum_of_blocks([[maybe_unused]] D d, hn::Vec<D> v) {
  if constexpr (hn::MaxLanes(D()) <= 4) {
    return v;
  } else {
    const hn::Half<D> half;
    return sum_of_blocks(half, hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  }
}

/// Stores the sums of the lanes of four vectors to `out`. Every vector goes through the same tree.
template <class D, class V = hn::Vec<D>>
HWY_INLINE void store_sums_of_four(D d, V a, V b, V c, V e, float* out) {
  const hn::Repartition<std::uint64_t, D> d64;
  const V ab = hn::Add(hn::InterleaveLower(d, a, b), hn::InterleaveUpper(d, a, b));
  const V ce = hn::Add(hn::InterleaveLower(d, c, e), hn::InterleaveUpper(d, c, e));
  const auto ab64 = hn::BitCast(d64, ab);
  const auto ce64 = hn::BitCast(d64, ce);
  const V lower = hn::BitCast(d, hn::InterleaveLower(d64, ab64, ce64));
  const V upper = hn::BitCast(d, hn::InterleaveUpper(d64, ab64, ce64));
  hn::StoreU(sum_of_blocks(d, hn::Add(lower, upper)), hn::CappedTag<float, 4>(), out);
}

#endif  // HWY_TARGET == HWY_SCALAR

/// Stores the lane sums of the first `valid` pages of each row, rows scores_stride apart.
template <int kRows, int kPages, class V>
HWY_INLINE void store_scores(const ScoreArgs& args, const V (&sum)[kRows][kPages],
                             std::int32_t valid, float* HWY_RESTRICT scores) {
  const hn::ScalableTag<float> d;
  QUEST_UNROLL
  for (int r = 0; r < kRows; ++r) {
    float* row = scores + r * args.scores_stride;
    QUEST_UNROLL
    for (int p = 0; p < kPages; p += 4) {
      float four[4];
      float* to = p + 4 <= valid ? row + p : four;
      store_sums_of_four(d, sum[r][p], sum[r][p + 1], sum[r][p + 2], sum[r][p + 3], to);
      if (to == four) {
        for (int i = p; i < valid; ++i) row[i] = four[i - p];
      }
    }
  }
}

/// Calls body(rows as a constant, args, coefficients, scores) for the rows of coefficients, at
/// most kMost (2 or 4) at a time.
template <int kMost, class Body>
HWY_INLINE void for_each_row_block(const ScoreArgs& args, const Body& body) {
  const std::int64_t length = std::int64_t{2} * args.head_dim;
  for (std::int32_t row = 0; row < args.rows;) {
    const float* coefficients = args.coefficients + row * length;
    float* scores = args.scores + row * args.scores_stride;
    const std::int32_t rows = args.rows - row;
    if (kMost >= 4 && rows >= 4) {
      body(std::integral_constant<int, HWY_MIN(kMost, 4)>(), args, coefficients, scores);
      row += 4;
    } else if (kMost >= 3 && rows == 3) {
      body(std::integral_constant<int, HWY_MIN(kMost, 3)>(), args, coefficients, scores);
      row += 3;
    } else if (rows >= 2) {
      body(std::integral_constant<int, 2>(), args, coefficients, scores);
      row += 2;
    } else {
      body(std::integral_constant<int, 1>(), args, coefficients, scores);
      row += 1;
    }
  }
}

template <class Format>
HWY_INLINE const typename Format::Element* summary_of(const ScoreArgs& args, std::int32_t page) {
  return reinterpret_cast<const typename Format::Element*>(
      args.summaries + std::int64_t{args.table[page]} * args.stride);
}

/// Pages that the prefetches run ahead of the arithmetic.
inline constexpr std::int32_t kScorePagesAhead = 16;
inline constexpr std::int32_t kQ4PagesAhead = 4 * kScorePagesAhead;

/// kRows rows of coefficients against pages [first, first + kPages), of which the first `valid`
/// exist. The missing ones repeat the last, so that the arithmetic of a page is always the same.
/// `last` is the last page worth a prefetch.
template <class Format, int kRows, int kPages>
HWY_INLINE void score_pages(const ScoreArgs& args, const float* HWY_RESTRICT coefficients,
                            std::int32_t first, std::int32_t valid, std::int32_t last,
                            float* HWY_RESTRICT scores) {
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  using Element = typename Format::Element;
  constexpr int kLanes = static_cast<int>(hn::MaxLanes(d));
  constexpr int kLineElements = 64 / static_cast<int>(sizeof(Element));
  const std::int32_t length = 2 * args.head_dim;
  const Element* summary[kPages];
  const Element* ahead[kPages];
  V sum[kRows][kPages];
  QUEST_UNROLL
  for (int p = 0; p < kPages; ++p) {
    summary[p] = summary_of<Format>(args, first + HWY_MIN(p, valid - 1));
    ahead[p] = summary_of<Format>(args, HWY_MIN(first + kScorePagesAhead + p, last));
    QUEST_UNROLL
    for (int r = 0; r < kRows; ++r) sum[r][p] = hn::Zero(d);
  }
  for (std::int32_t j = 0; j < length; j += kLanes) {
    V c[kRows];
    QUEST_UNROLL
    for (int r = 0; r < kRows; ++r) c[r] = hn::LoadU(d, coefficients + r * length + j);
    const bool new_line = j % kLineElements == 0;
    QUEST_UNROLL
    for (int p = 0; p < kPages; ++p) {
      if (new_line) __builtin_prefetch(ahead[p] + j, 0, 2);
      const V x = load_wide(d, Format(), summary[p] + j);
      QUEST_UNROLL
      for (int r = 0; r < kRows; ++r) sum[r][p] = hn::MulAdd(c[r], x, sum[r][p]);
    }
  }
  store_scores<kRows, kPages>(args, sum, valid, scores + first);
}

template <class Format, int kRows>
void score_rows(const ScoreArgs& args, const float* coefficients, float* scores) {
  constexpr int kPages = (kRows == 1 && kRegisters == 32) ? 8 : 4;
  const std::int32_t end = args.first + args.count;
  for (std::int32_t page = args.first; page < end; page += kPages) {
    score_pages<Format, kRows, kPages>(args, coefficients, page, HWY_MIN(kPages, end - page),
                                       end - 1, scores);
  }
}

template <class Format>
void score(const ScoreArgs& args) {
  for_each_row_block<kRegisters == 32 ? 4 : 2>(
      args, [](auto rows, const ScoreArgs& a, const float* coefficients, float* scores)
                HWY_ATTR { score_rows<Format, decltype(rows)::value>(a, coefficients, scores); });
}

}  // namespace quest::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
// NOLINTEND(bugprone-implicit-widening-of-multiplication-result)

#endif
