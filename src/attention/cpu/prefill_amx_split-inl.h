// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0

// Per-target include guard.
#if defined(QUEST_ATTENTION_CPU_PREFILL_AMX_SPLIT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUEST_ATTENTION_CPU_PREFILL_AMX_SPLIT_INL_H_
#undef QUEST_ATTENTION_CPU_PREFILL_AMX_SPLIT_INL_H_
#else
#define QUEST_ATTENTION_CPU_PREFILL_AMX_SPLIT_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstring>

#include "attention/cpu/amx.h"
#include "attention/cpu/kernels.h"
#include "attention/cpu/prefill_amx_layout.h"
#include "attention/cpu/split-inl.h"

// Queries, keys and values of a prefill tile, split into bf16 parts where the tiles load them from.

// Only instruction sets that every machine with tiles has.
#undef QUEST_AMX_TARGET
#define QUEST_AMX_TARGET (QUEST_HAVE_AMX && HWY_TARGET <= HWY_AVX3)
#if QUEST_AMX_TARGET

// Offsets here stay inside one page, run or tile; those into the pool are 64-bit.
// NOLINTBEGIN(bugprone-implicit-widening-of-multiplication-result)
HWY_BEFORE_NAMESPACE();
namespace quest::cpu::HWY_NAMESPACE {

/// Numbers in a vector, rows and 32-bit columns of a tile.
inline constexpr std::int32_t kAmxLanes = 16;
/// Bytes from one row of 32 logits to the next.
inline constexpr std::int64_t kLogitRowBytes = 128;

/// One virtual row is one (position, head): row = position in tile * heads + head.
struct AmxTile {
  const PrefillArgs& args;
  AmxScratch scratch;
  std::int32_t virtual_rows;

  /// Tokens of the run starting at `begin` that a virtual row may see.
  std::int32_t visible(std::int32_t row, std::int64_t begin, std::int32_t run) const {
    const std::int64_t end = args.first_position + row / args.heads + 1;
    return static_cast<std::int32_t>(std::clamp<std::int64_t>(end - begin, 0, run));
  }
};

/// Greatest |q|·|k|·scale for which products of two parts will do: the error of a logit stays below
/// 2^-6 in the worst case, and near 2^-9. Beyond, differences between logits would be lost.
inline constexpr float kGreatestLogit = 1024;

/// Splits tokens [0, valid) of one page of keys, [head_dim][page_size], into columns `column`… of
/// the run; columns up to the next whole vector become 0. `next` is the page to come. True if every
/// |k|² is within the limit, which NaN and infinity are not.
template <class Format, class D>
HWY_INLINE bool split_keys(D d, const typename Format::Element* k,
                           const typename Format::Element* next, const HeadPages& pages,
                           std::int32_t valid, std::int32_t column, const AmxScratch& scratch,
                           float limit) {
  constexpr std::int32_t kLanes = static_cast<std::int32_t>(hn::MaxLanes(d));
  const std::int32_t size = pages.page_size;
  NoCheck no_check;
  bool within = true;
  for (std::int32_t t = 0; t < valid; t += kLanes) {
    const auto seen = hn::FirstN(d, static_cast<std::size_t>(valid - t));
    const std::int32_t c = column + t;
    std::uint32_t* to =
        scratch.keys + c / kAmxLanes * (scratch.depth / 2) * kRowWords + c % kAmxLanes;
    std::int32_t from = t;
    auto squares0 = hn::Zero(d);
    auto squares1 = hn::Zero(d);
    for (std::int32_t j = 0; j < pages.head_dim; j += 2) {
      const auto even = hn::IfThenElseZero(seen, load_wide(d, Format(), k + from));
      const auto odd = hn::IfThenElseZero(seen, load_wide(d, Format(), k + from + size));
      __builtin_prefetch(next + from);
      split_pairs<kParts<Format>>(d, even, odd, to, to + scratch.run_words, no_check);
      squares0 = hn::MulAdd(even, even, squares0);
      squares1 = hn::MulAdd(odd, odd, squares1);
      from += 2 * size;
      to += kRowWords;
    }
    const auto squares = hn::Add(squares0, squares1);
    within = within && hn::AllTrue(d, hn::Le(squares, hn::Set(d, limit)));
  }
  return within;
}

/// Splits the keys of tokens [begin, begin + run).
template <class Format, class D>
bool split_run_keys(D d, const AmxTile& tile, std::int64_t begin, std::int32_t run, float limit) {
  const HeadPages& pages = tile.args.pages;
  const auto page_at = [&](std::int32_t t) {
    const std::int64_t page = pages.table[(begin + t) / pages.page_size];
    return reinterpret_cast<const typename Format::Element*>(pages.k + page * pages.stride);
  };
  bool within = true;
  for (std::int32_t t = 0; t < run && within; t += pages.page_size) {
    const std::int32_t next = t + pages.page_size < run ? t + pages.page_size : t;
    within = split_keys<Format>(d, page_at(t), page_at(next), pages,
                                std::min(pages.page_size, run - t), t, tile.scratch, limit);
  }
  return within;
}

/// Splits the values of tokens [begin, begin + run), in pairs (t, t + 16) of each step, as the
/// softmax pairs its weights. Tokens up to the next whole step become 0. False if a value is not
/// finite.
template <class Format>
bool split_run_values(const AmxTile& tile, std::int64_t begin, std::int32_t run) {
  using Element = typename Format::Element;
  alignas(64) static constexpr Element kNoToken[256] = {};
  constexpr std::int32_t kGroup = 8;  // tokens that never lie in different pages
  const hn::CappedTag<float, kAmxLanes> d;
  const HeadPages& pages = tile.args.pages;
  const AmxScratch& scratch = tile.scratch;
  const std::int64_t tile_step = scratch.run / 2 * kRowWords;
  const auto row = [&](std::int32_t t) {
    const std::int64_t position = begin + t;
    const std::int64_t page = pages.table[position / pages.page_size];
    return reinterpret_cast<const Element*>(pages.v + page * pages.stride) +
           position % pages.page_size * pages.head_dim;
  };
  FiniteCheck<hn::Vec<decltype(d)>> check(d);
  for (std::int32_t first = 0; first < run; first += kAmxStep) {
    for (std::int32_t i = 0; i < kAmxLanes; i += kGroup) {
      const std::int32_t even_count = std::clamp(run - first - i, 0, kGroup);
      const std::int32_t odd_count = std::clamp(run - first - i - kAmxLanes, 0, kGroup);
      const Element* const evens = even_count > 0 ? row(first + i) : kNoToken;
      const Element* const odds = odd_count > 0 ? row(first + i + kAmxLanes) : kNoToken;
      // The rows of the step to come.
      const Element* const evens_ahead =
          first + kAmxStep + i < run ? row(first + kAmxStep + i) : evens;
      const Element* const odds_ahead =
          first + kAmxStep + kAmxLanes + i < run ? row(first + kAmxStep + kAmxLanes + i) : odds;
      for (std::int32_t p = 0; p < kGroup; ++p) {
        const Element* even = p < even_count ? evens + p * pages.head_dim : kNoToken;
        const Element* odd = p < odd_count ? odds + p * pages.head_dim : kNoToken;
        std::uint32_t* to = scratch.values + (first / 2 + i + p) * kRowWords;
        for (std::int32_t c = 0; c < pages.head_dim; c += kAmxLanes) {
          __builtin_prefetch(evens_ahead + p * pages.head_dim + c);
          __builtin_prefetch(odds_ahead + p * pages.head_dim + c);
          split_pairs<kParts<Format>>(d, load_wide(d, Format(), even + c),
                                      load_wide(d, Format(), odd + c), to, to + scratch.run_words,
                                      check);
          to += tile_step;
        }
      }
    }
  }
  return check.finite(d);
}

/// False if products of parts will not do.
template <class Format>
bool split_run(const AmxTile& tile, std::int64_t begin, std::int32_t run, float limit) {
  const hn::CappedTag<float, kAmxLanes> d;
  const hn::CappedTag<float, 8> d8;
  const bool within = tile.args.pages.page_size >= kAmxLanes
                          ? split_run_keys<Format>(d, tile, begin, run, limit)
                          : split_run_keys<Format>(d8, tile, begin, run, limit);
  return within && split_run_values<Format>(tile, begin, run);
}

/// Splits the queries into tiles. Returns the greatest |q|²; NaN or infinity if one is not finite.
inline float split_queries(const AmxTile& tile) {
  const hn::CappedTag<float, kAmxLanes> d;
  const hn::CappedTag<float, 8> d8;
  const hn::RebindToUnsigned<decltype(d)> du;
  const AmxScratch& scratch = tile.scratch;
  const std::int32_t head_dim = tile.args.pages.head_dim;
  const std::int32_t heads = tile.args.heads;
  const std::int32_t rows = round_up(tile.virtual_rows, kAmxBlockRows);
  std::memset(scratch.queries, 0,
              sizeof(std::uint32_t) * 2 * static_cast<std::size_t>(rows) * scratch.depth / 2);
  float greatest = 0;
  for (std::int32_t row = 0; row < tile.virtual_rows; ++row) {
    const float* q = tile.args.q + row / heads * tile.args.q_stride + row % heads * head_dim;
    std::uint32_t* to = scratch.queries + row / kTileRows * (scratch.depth / 2 * kTileRows) +
                        row % kTileRows * kRowWords;
    auto squares = hn::Zero(d);
    for (std::int32_t j = 0; j < head_dim; j += kAmxLanes) {
      // Sixteen channels are eight pairs: half a tile row.
      const auto x = hn::LoadU(d, q + j);
      const auto hi = round_to_bf16(d, x);
      const auto lo = round_to_bf16(d, hn::Sub(x, hi));
      squares = hn::MulAdd(x, x, squares);
      const hn::Repartition<std::uint16_t, decltype(d)> d16;
      const auto none = hn::Zero(d16);
      const auto hi16 = hn::ConcatOdd(d16, none, hn::BitCast(d16, hi));
      const auto lo16 = hn::ConcatOdd(d16, none, hn::BitCast(d16, lo));
      std::uint32_t* half = to + j / kAmxStep * kTileWords + j % kAmxStep / 2;
      const hn::RebindToUnsigned<decltype(d8)> du8;
      hn::StoreU(hn::LowerHalf(hn::BitCast(du, hi16)), du8, half);
      hn::StoreU(hn::LowerHalf(hn::BitCast(du, lo16)), du8, half + scratch.query_words);
    }
    const float sum = hn::GetLane(hn::SumOfLanes(d, squares));
    if (!(sum <= greatest)) greatest = sum;
    if (std::isnan(sum)) return sum;
  }
  return greatest;
}

}  // namespace quest::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
// NOLINTEND(bugprone-implicit-widening-of-multiplication-result)

#endif  // QUEST_AMX_TARGET

#endif
