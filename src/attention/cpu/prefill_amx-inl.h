// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0

// Per-target include guard.
#if defined(QUEST_ATTENTION_CPU_PREFILL_AMX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUEST_ATTENTION_CPU_PREFILL_AMX_INL_H_
#undef QUEST_ATTENTION_CPU_PREFILL_AMX_INL_H_
#else
#define QUEST_ATTENTION_CPU_PREFILL_AMX_INL_H_
#endif

#include <algorithm>
#include <cstring>
#include <limits>

#include "attention/cpu/prefill_amx_softmax-inl.h"

// Causal attention by bf16 tile products. A float is split in two bf16 parts, x = hi + lo, and a
// product is hi·hi + hi·lo + lo·hi: relative error about 2^-17, below that of 16-bit storage, at a
// third of the tiles' speed. Numbers that bf16 holds exactly (bf16 pages) need no lo.

#if QUEST_AMX_TARGET

// Offsets here stay inside one page, run or tile; those into the pool are 64-bit.
// NOLINTBEGIN(bugprone-implicit-widening-of-multiplication-result)
HWY_BEFORE_NAMESPACE();
namespace quest::cpu::HWY_NAMESPACE {

/// Outputs so far on the scale of the unit's weights.
inline void rescale_outputs(const AmxScratch& scratch, AmxUnit& unit) {
  const hn::CappedTag<float, kAmxLanes> d;
  for (std::int32_t r = 0; r < kAmxBlockRows; ++r) {
    const auto factor = hn::Set(d, unit.rescale[r]);
    unit.rescale[r] = 1;
    float* o = scratch.o + std::int64_t{unit.row + r / kTileRows * kTileRows} * scratch.depth +
               r % kTileRows * kRowWords;
    for (std::int32_t j = 0; j < scratch.depth; j += kAmxLanes, o += kTileWords) {
      hn::StoreU(hn::Mul(factor, hn::LoadU(d, o)), d, o);
    }
  }
  unit.rescaled = false;
}

/// One moment of the pipeline: softmax of one unit beside the tile products of two others.
template <int kPartCount>
void amx_moment(const AmxTile& tile, AmxUnit& values, AmxUnit& softmax, const AmxUnit& logits,
                std::int64_t begin, std::int32_t run) {
  if (values.rescaled) rescale_outputs(tile.scratch, values);
  AmxWork work(tile, values, logits);
  TileGroup groups[2];
  if (softmax.steps > 0) {
    UnitSoftmax rows(tile, softmax);
    for (std::int32_t r = 0; r < kAmxBlockRows; r += 4) {
      const std::int32_t seen = tile.visible(softmax.row + r, begin, run) - softmax.token;
      // Spread evenly over the rows that are left.
      const std::int32_t due = work.left() / ((kAmxBlockRows - r) / 4);
      if (seen >= kAmxUnit && due >= 2) {
        groups[0] = work.next();
        groups[1] = work.next();
        rows.four_rows<kPartCount, 2>(r, groups);
      } else if (seen >= kAmxUnit && due == 1) {
        groups[0] = work.next();
        rows.four_rows<kPartCount, 1>(r, groups);
      } else if (seen >= kAmxUnit) {
        rows.four_rows<kPartCount, 0>(r, groups);
      } else {
        for (std::int32_t i = r; i < r + 4; ++i) {
          const std::int32_t row_sees = tile.visible(softmax.row + i, begin, run) - softmax.token;
          rows.edge_row(i, std::clamp(row_sees, 0, kAmxUnit));
        }
      }
    }
  }
  while (work.left() > 0) {
    groups[0] = work.next();
    issue<kPartCount, 0, kGroupLength<kPartCount>>(groups);
  }
}

/// Everything that the rows of the tile have to do with one run that was split.
template <int kPartCount>
void amx_run(const AmxTile& tile, std::int64_t begin, std::int32_t run) {
  const AmxScratch& scratch = tile.scratch;
  AmxUnit units[kAmxStages];
  std::int32_t count = 0;
  const auto advance = [&](AmxUnit next) {
    const std::int32_t stage = count++ % kAmxStages;
    next.logits = scratch.logits + std::int64_t{stage} * kAmxBlockRows * kAmxUnit;
    next.rescale = scratch.rescale + std::int64_t{stage} * kAmxBlockRows;
    units[stage] = next;
    amx_moment<kPartCount>(tile, units[(stage + 1) % kAmxStages], units[(stage + 2) % kAmxStages],
                           units[stage], begin, run);
  };
  for (std::int32_t row = 0; row < tile.virtual_rows; row += kAmxBlockRows) {
    const std::int32_t last = std::min(row + kAmxBlockRows, tile.virtual_rows) - 1;
    const std::int32_t most = tile.visible(last, begin, run);
    for (std::int32_t token = 0; token < most; token += kAmxUnit) {
      AmxUnit unit;
      unit.row = row;
      unit.token = token;
      unit.steps = (std::min(most - token, kAmxUnit) + kAmxStep - 1) / kAmxStep;
      advance(unit);
    }
  }
  for (std::int32_t i = 1; i < kAmxStages; ++i) advance(AmxUnit{});
}

inline void store_outputs(const AmxTile& tile) {
  const AmxScratch& s = tile.scratch;
  const hn::CappedTag<float, kAmxLanes> d;
  const std::int32_t head_dim = tile.args.pages.head_dim;
  for (std::int32_t row = 0; row < tile.virtual_rows; ++row) {
    const float* o =
        s.o + std::int64_t{row / kTileRows * kTileRows} * s.depth + row % kTileRows * kRowWords;
    float* out = tile.args.out + row / tile.args.heads * tile.args.out_stride +
                 row % tile.args.heads * head_dim;
    // The greatest weight is at least 1, unless all logits are -inf: then the output is 0.
    const auto sum =
        hn::Max(hn::SumOfLanes(d, hn::LoadU(d, s.sums + row * kRowWords)), hn::Set(d, 1e-30F));
    for (std::int32_t j = 0; j < head_dim; j += kAmxLanes, o += kTileWords) {
      hn::StoreU(hn::Div(hn::LoadU(d, o), sum), d, out + j);
    }
  }
}

/// False, with nothing written, if this is not the way: logits may be too large for the parts, or a
/// number is not finite, which 0 times it would carry to rows that may not see it.
template <class Format>
bool prefill_by_tiles(const PrefillArgs& args) {
  const std::int32_t virtual_rows = args.rows * args.heads;
  const std::int32_t head_dim = args.pages.head_dim;
  const AmxTile tile{args, AmxScratch(args.scratch, virtual_rows, head_dim), virtual_rows};
  const AmxScratch& scratch = tile.scratch;
  const float greatest_q = split_queries(tile);
  const float greatest_product = kGreatestLogit / args.scale;
  constexpr float kMax = std::numeric_limits<float>::max();
  // A limit of infinity would let infinite keys pass.
  const float limit =
      std::min(greatest_product * greatest_product / std::max(greatest_q, 1e-20F), kMax);
  if (!(greatest_q <= kMax)) return false;
  if (scratch.depth > head_dim) {
    std::memset(scratch.keys, 0, 4 * sizeof(std::uint32_t) * scratch.run_words);
  }
  const std::int64_t rows = round_up(virtual_rows, kAmxBlockRows);
  std::fill_n(scratch.o, rows * scratch.depth, 0.0F);
  std::fill_n(scratch.sums, rows * kRowWords, 0.0F);
  std::fill_n(scratch.shifts, rows, kNoShift);
  std::fill_n(scratch.rescale, kAmxStages * kAmxBlockRows, 1.0F);

  const TileScope scope;
  const std::int64_t end = args.first_position + args.rows;
  for (std::int64_t begin = 0; begin < end; begin += scratch.run) {
    const auto run = static_cast<std::int32_t>(std::min<std::int64_t>(scratch.run, end - begin));
    if (!split_run<Format>(tile, begin, run, limit)) return false;
    amx_run<kParts<Format>>(tile, begin, run);
  }
  store_outputs(tile);
  return true;
}

}  // namespace quest::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
// NOLINTEND(bugprone-implicit-widening-of-multiplication-result)

#endif  // QUEST_AMX_TARGET

#endif
