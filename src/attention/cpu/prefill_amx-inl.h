// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0

// Per-target include guard.
#if defined(QUEST_ATTENTION_CPU_PREFILL_AMX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUEST_ATTENTION_CPU_PREFILL_AMX_INL_H_
#undef QUEST_ATTENTION_CPU_PREFILL_AMX_INL_H_
#else
#define QUEST_ATTENTION_CPU_PREFILL_AMX_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "attention/cpu/amx.h"
#include "attention/cpu/kernels.h"
#include "attention/cpu/prefill_amx_layout.h"
#include "attention/cpu/split-inl.h"

// Causal attention by bf16 tile products. A float is split in two bf16 parts, x = hi + lo, and a
// product is hi·hi + hi·lo + lo·hi: relative error about 2^-17, below that of 16-bit storage, at a
// third of the tiles' speed. Numbers that bf16 holds exactly (bf16 pages) need no lo.

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

/// One step of a product of [32 rows] x [32 columns], as the addresses of its tiles.
struct TileGroup {
  const std::byte* rows;   ///< hi part
  std::int64_t rows_lo;    ///< bytes from hi to lo
  std::int64_t rows_next;  ///< bytes to the second tile
  std::int64_t rows_stride;
  const std::byte* columns;
  std::int64_t columns_lo;
  std::int64_t columns_next;
  float* sums;
  std::int64_t sums_row_next;     ///< floats to the tile below
  std::int64_t sums_column_next;  ///< floats to the tile on the right
  std::int64_t sums_stride;       ///< bytes
  bool zero;                      ///< sums start at 0
  bool load;                      ///< sums start at what is in memory
  bool store;                     ///< sums are complete
};

/// Instructions of a group; tiles 0 … 3 accumulate, 4 and 5 hold rows, 6 and 7 columns.
template <int kPartCount>
inline constexpr int kGroupLength = kPartCount == 1 ? 22 : 28;

template <int kIndex>
HWY_INLINE void begin_sum(const TileGroup& g) {
  if (g.zero) tile_zero<kIndex>();
  if (g.load) {
    tile_load<kIndex>(g.sums + kIndex / 2 * g.sums_row_next + kIndex % 2 * g.sums_column_next,
                      g.sums_stride);
  }
}

template <int kIndex>
HWY_INLINE void end_sum(const TileGroup& g) {
  if (g.store) {
    tile_store<kIndex>(g.sums + kIndex / 2 * g.sums_row_next + kIndex % 2 * g.sums_column_next,
                       g.sums_stride);
  }
}

/// Row tile `kIndex % 2` and column tile `kIndex / 2`, so that the second products of a column
/// follow its load at once.
template <int kIndex>
HWY_INLINE void dot_tiles() {
  tile_dot<kIndex % 2 * 2 + kIndex / 2, 4 + kIndex % 2, 6 + kIndex / 2>();
}

/// Instruction kIndex of a group. In the order hi·lo, hi·hi, lo·hi each step loads two tiles.
template <int kPartCount, int kIndex>
HWY_INLINE void issue_one(const TileGroup& g) {
  constexpr bool kSplitColumns = kPartCount > 1;
  constexpr int kSecond = kSplitColumns ? 12 : 8;  // first index after the first products
  constexpr int kLast = kSplitColumns ? 18 : 12;   // loads of the rows' lo parts
  const std::byte* const columns = kSplitColumns ? g.columns + g.columns_lo : g.columns;
  if constexpr (kIndex < 4) begin_sum<kIndex>(g);
  if constexpr (kIndex == 4) tile_load<4>(g.rows, g.rows_stride);
  if constexpr (kIndex == 5) tile_load<6>(columns, kTileRowBytes);
  if constexpr (kIndex == 6) tile_load<5>(g.rows + g.rows_next, g.rows_stride);
  if constexpr (kIndex == 7) tile_load<7>(columns + g.columns_next, kTileRowBytes);
  if constexpr (kIndex >= 8 && kIndex < 12) dot_tiles<kIndex - 8>();
  if constexpr (kSplitColumns) {
    if constexpr (kIndex == kSecond) tile_load<6>(g.columns, kTileRowBytes);
    if constexpr (kIndex == kSecond + 1) tile_load<7>(g.columns + g.columns_next, kTileRowBytes);
    if constexpr (kIndex >= kSecond + 2 && kIndex < kSecond + 6) dot_tiles<kIndex - kSecond - 2>();
  }
  if constexpr (kIndex == kLast) tile_load<4>(g.rows + g.rows_lo, g.rows_stride);
  if constexpr (kIndex == kLast + 1) tile_load<5>(g.rows + g.rows_lo + g.rows_next, g.rows_stride);
  if constexpr (kIndex >= kLast + 2 && kIndex < kLast + 6) dot_tiles<kIndex - kLast - 2>();
  if constexpr (kIndex >= kLast + 6) end_sum<kIndex - kLast - 6>(g);
}

/// Instructions [kBegin, kEnd) of groups laid end to end.
template <int kPartCount, int kBegin, int kEnd>
HWY_INLINE void issue(const TileGroup* groups) {
  if constexpr (kBegin < kEnd) {
    constexpr int kLength = kGroupLength<kPartCount>;
    issue_one<kPartCount, kBegin % kLength>(groups[kBegin / kLength]);
    issue<kPartCount, kBegin + 1, kEnd>(groups);
  }
}

/// What 32 rows have of 64 tokens. Logits, softmax and values of a unit follow one another; at any
/// time three units are in these three stages.
struct AmxUnit {
  std::int32_t row = 0;
  std::int32_t token = 0;  ///< in the run
  std::int32_t steps = 0;  ///< of 32 tokens, up to the last that any row sees
  float* logits = nullptr;
  float* rescale = nullptr;
  bool rescaled = false;
};

/// The tile products of one moment: logits of one unit, then values of another. In this order the
/// softmax that comes next does not wait for the last logits, nor the values for the last weights.
class AmxWork {
 public:
  AmxWork(const AmxTile& tile, const AmxUnit& values, const AmxUnit& logits)
      : scratch_(tile.scratch), depth_steps_(tile.scratch.depth / kAmxStep) {
    if (values.steps > 0) start_values(values);
    if (logits.steps > 0) start_logits(logits);
    left_ = value_groups_ + logit_groups_;
  }
  std::int32_t left() const { return left_; }

  TileGroup next() {
    --left_;
    return logit_groups_ > 0 ? next_logit() : next_value();
  }

 private:
  void start_values(const AmxUnit& unit) {
    const AmxScratch& s = scratch_;
    value_steps_ = unit.steps;
    value_groups_ = unit.steps * depth_steps_;
    value_.rows = bytes(unit.logits);
    value_.rows_lo = kTileRowBytes;
    value_.rows_next = 4 * kTileWords * 4;
    value_.rows_stride = kLogitRowBytes;
    value_.columns = bytes(s.values + unit.token / 2 * kRowWords);
    value_.columns_lo = s.run_words * 4;
    value_.columns_next = s.run / 2 * kRowWords * 4;
    value_.sums = s.o + std::int64_t{unit.row} * s.depth;
    value_.sums_row_next = std::int64_t{kTileRows} * s.depth;
    value_.sums_column_next = kTileWords;
    value_.sums_stride = kTileRowBytes;
    value_.zero = false;
  }
  TileGroup next_value() {
    --value_groups_;
    TileGroup group = value_;
    group.load = value_step_ == 0;
    group.store = ++value_step_ == value_steps_;
    value_.rows += 2 * kTileWords * 4;
    value_.columns += kTileWords * 4;
    if (group.store) {  // on to the next 32 channels
      value_step_ = 0;
      value_.rows -= value_steps_ * 2 * kTileWords * 4;
      value_.columns += 2 * value_.columns_next - value_steps_ * kTileWords * 4;
      value_.sums += 2 * kTileWords;
    }
    return group;
  }

  void start_logits(const AmxUnit& unit) {
    const AmxScratch& s = scratch_;
    logit_groups_ = unit.steps * depth_steps_;
    logit_.rows = bytes(s.queries + std::int64_t{unit.row} * (s.depth / 2));
    logit_.rows_lo = s.query_words * 4;
    logit_.rows_next = depth_steps_ * kTileWords * 4;
    logit_.rows_stride = kTileRowBytes;
    logit_.columns = bytes(s.keys + std::int64_t{unit.token} * (s.depth / 2));
    logit_.columns_lo = s.run_words * 4;
    logit_.columns_next = logit_.rows_next;
    logit_.sums = unit.logits;
    logit_.sums_row_next = 4 * kTileWords;
    logit_.sums_column_next = kAmxLanes;
    logit_.sums_stride = kLogitRowBytes;
    logit_.load = false;
  }
  TileGroup next_logit() {
    --logit_groups_;
    TileGroup group = logit_;
    group.zero = logit_depth_ == 0;
    group.store = ++logit_depth_ == depth_steps_;
    logit_.rows += kTileWords * 4;
    logit_.columns += kTileWords * 4;
    if (group.store) {  // on to the next 32 tokens
      logit_depth_ = 0;
      logit_.rows -= logit_.rows_next;
      logit_.columns += logit_.columns_next;
      logit_.sums += 2 * kTileWords;
    }
    return group;
  }
  static const std::byte* bytes(const void* p) { return static_cast<const std::byte*>(p); }

  const AmxScratch& scratch_;
  std::int32_t depth_steps_;
  std::int32_t left_ = 0;
  std::int32_t value_groups_ = 0;
  std::int32_t value_steps_ = 0;
  std::int32_t value_step_ = 0;
  std::int32_t logit_groups_ = 0;
  std::int32_t logit_depth_ = 0;
  TileGroup value_{};
  TileGroup logit_{};
};

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
