// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0

// Per-target include guard.
#if defined(QUEST_ATTENTION_CPU_PREFILL_AMX_SOFTMAX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUEST_ATTENTION_CPU_PREFILL_AMX_SOFTMAX_INL_H_
#undef QUEST_ATTENTION_CPU_PREFILL_AMX_SOFTMAX_INL_H_
#else
#define QUEST_ATTENTION_CPU_PREFILL_AMX_SOFTMAX_INL_H_
#endif

#include <algorithm>

#include "attention/cpu/prefill_amx_tiles-inl.h"

// Softmax of the rows of a unit, with the tile products of two other units between its vectors.

#if QUEST_AMX_TARGET

// Offsets here stay inside one page, run or tile; those into the pool are 64-bit.
// NOLINTBEGIN(bugprone-implicit-widening-of-multiplication-result)
HWY_BEFORE_NAMESPACE();
namespace quest::cpu::HWY_NAMESPACE {

/// The softmax shifts logits by a number that need not be the maximum: as long as no logit passes
/// it by more than this power of two, the shift stays and nothing is rescaled.
inline constexpr float kShiftSlack = 8;
/// Before the first logit. Finite, so that a logit of -inf gets the weight 0.
inline constexpr float kNoShift = -3e38F;

/// Softmax of the rows of one unit.
class UnitSoftmax {
 public:
  using D = hn::CappedTag<float, kAmxLanes>;
  using V = hn::Vec<D>;

  UnitSoftmax(const AmxTile& tile, AmxUnit& unit)
      : scratch_(tile.scratch), unit_(unit), factor_(tile.args.scale * kLog2E) {}

  /// Weights of rows [r, r + 4), r % 4 == 0, which see all 64 tokens. Tile instructions are put
  /// between the vectors': a group of them on end would hold up both units.
  template <int kPartCount, int kGroups>
  HWY_INLINE void four_rows(std::int32_t r, const TileGroup* groups) {
    constexpr int kInstructions = kGroups * kGroupLength<kPartCount>;
    const D d;
    float* const x = logits(r);
    const V factor = hn::Set(d, factor_);
    auto exceeded = hn::FirstN(d, 0);
    QUEST_UNROLL
    for (int i = 0; i < 4; ++i) {
      exceeded = hn::Or(exceeded, exceeds(top(x + i * kAmxStep), unit_.row + r + i));
    }
    if (HWY_UNLIKELY(!hn::AllFalse(d, exceeded))) {
      // Each row by its own logits: its result must not depend on its neighbours.
      for (int i = 0; i < 4; ++i) {
        const V row_top = top(x + i * kAmxStep);
        if (!hn::AllFalse(d, exceeds(row_top, unit_.row + r + i))) raise(r + i, row_top);
      }
    }
    one_of_four<0, kPartCount, kInstructions>(r, x, factor, groups);
    one_of_four<1, kPartCount, kInstructions>(r, x, factor, groups);
    one_of_four<2, kPartCount, kInstructions>(r, x, factor, groups);
    one_of_four<3, kPartCount, kInstructions>(r, x, factor, groups);
  }

  /// Weights of a row that sees `seen` tokens of the unit; the others get 0.
  HWY_INLINE void edge_row(std::int32_t r, std::int32_t seen) {
    const D d;
    float* const x = logits(r);
    V top = hn::Set(d, kNegInf);
    for (std::int32_t t = 0; t < kAmxUnit; t += kAmxLanes) {
      if (t >= seen) break;
      top = hn::Max(top, hn::IfThenElse(hn::FirstN(d, static_cast<std::size_t>(seen - t)),
                                        hn::LoadU(d, at(x, t)), hn::Set(d, kNegInf)));
    }
    if (!hn::AllFalse(d, exceeds(top, unit_.row + r))) raise(r, top);
    const V factor = hn::Set(d, factor_);
    const V shift = hn::Set(d, scratch_.shifts[unit_.row + r]);
    float* const sums = scratch_.sums + (unit_.row + r) * kRowWords;
    V total = hn::LoadU(d, sums);
    for (std::int32_t step = 0; step < unit_.steps; ++step) {
      V weights[2];
      for (int half = 0; half < 2; ++half) {
        const std::int32_t t = step * kAmxStep + half * kAmxLanes;
        const auto mask = hn::FirstN(d, static_cast<std::size_t>(std::max(seen - t, 0)));
        weights[half] = hn::IfThenElseZero(mask, weigh(at(x, t), factor, shift));
        total = hn::Add(total, weights[half]);
      }
      store(weights[0], weights[1], at(x, step * kAmxStep));
    }
    hn::StoreU(total, d, sums);
  }

 private:
  /// First logit of a row of the unit; each 16 rows have their steps one after the other.
  float* logits(std::int32_t r) const {
    return unit_.logits + r / kTileRows * (4 * kTileWords) + r % kTileRows * kAmxStep;
  }
  static float* at(float* row, std::int32_t t) {
    return row + t / kAmxStep * (2 * kTileWords) + t % kAmxStep;
  }
  static HWY_INLINE V top(float* row) {
    const D d;
    return hn::Max(hn::Max(hn::LoadU(d, at(row, 0)), hn::LoadU(d, at(row, 16))),
                   hn::Max(hn::LoadU(d, at(row, 32)), hn::LoadU(d, at(row, 48))));
  }
  HWY_INLINE hn::Mask<D> exceeds(V top, std::int32_t row) const {
    const D d;
    return hn::Gt(hn::MulSub(top, hn::Set(d, factor_), hn::Set(d, scratch_.shifts[row])),
                  hn::Set(d, kShiftSlack));
  }
  /// Moves the shift of a row up to its greatest logit.
  HWY_INLINE void raise(std::int32_t r, V top) {
    const D d;
    float& shift = scratch_.shifts[unit_.row + r];
    const float greatest = hn::GetLane(hn::MaxOfLanes(d, top)) * factor_;
    if (!(greatest > shift)) return;
    const float rescale = exp2_not_positive(shift - greatest);
    shift = greatest;
    float* const sums = scratch_.sums + (unit_.row + r) * kRowWords;
    hn::StoreU(hn::Mul(hn::LoadU(d, sums), hn::Set(d, rescale)), d, sums);
    unit_.rescale[r] = rescale;
    unit_.rescaled = true;
  }
  static HWY_INLINE V weigh(const float* x, V factor, V shift) {
    const D d;
    return exp2_not_positive(d, hn::MulSub(hn::LoadU(d, x), factor, shift));
  }
  /// Tokens t and t + 16 of a step share a word, as in split_run_values.
  static HWY_INLINE void store(V even, V odd, float* x) {
    NoCheck no_check;
    auto* to = reinterpret_cast<std::uint32_t*>(x);
    split_pairs<2>(D(), even, odd, to, to + kRowWords, no_check);
  }
  template <int kRow, int kPartCount, int kInstructions>
  HWY_INLINE void one_of_four(std::int32_t r, float* x, V factor, const TileGroup* groups) {
    const D d;
    const std::int32_t row = unit_.row + r + kRow;
    const V shift = hn::Set(d, scratch_.shifts[row]);
    float* const sums = scratch_.sums + row * kRowWords;
    const V total = hn::LoadU(d, sums);
    float* const first = x + kRow * kAmxStep;
    float* const second = at(first, kAmxStep);
    // A quarter of the instructions to a row, a quarter of these to a vector.
    const V w0 = weigh(first, factor, shift);
    issue<kPartCount, kInstructions*(4 * kRow) / 16, kInstructions*(4 * kRow + 1) / 16>(groups);
    const V w1 = weigh(first + kAmxLanes, factor, shift);
    store(w0, w1, first);
    issue<kPartCount, kInstructions*(4 * kRow + 1) / 16, kInstructions*(4 * kRow + 2) / 16>(groups);
    const V w2 = weigh(second, factor, shift);
    issue<kPartCount, kInstructions*(4 * kRow + 2) / 16, kInstructions*(4 * kRow + 3) / 16>(groups);
    const V w3 = weigh(second + kAmxLanes, factor, shift);
    store(w2, w3, second);
    hn::StoreU(hn::Add(total, hn::Add(hn::Add(w0, w1), hn::Add(w2, w3))), d, sums);
    issue<kPartCount, kInstructions*(4 * kRow + 3) / 16, kInstructions*(4 * kRow + 4) / 16>(groups);
  }

  const AmxScratch& scratch_;
  AmxUnit& unit_;
  const float factor_;
};

}  // namespace quest::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
// NOLINTEND(bugprone-implicit-widening-of-multiplication-result)

#endif  // QUEST_AMX_TARGET

#endif
