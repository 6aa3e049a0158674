// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0

// Per-target include guard.
#if defined(QUEST_ATTENTION_CPU_PREFILL_AMX_TILES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUEST_ATTENTION_CPU_PREFILL_AMX_TILES_INL_H_
#undef QUEST_ATTENTION_CPU_PREFILL_AMX_TILES_INL_H_
#else
#define QUEST_ATTENTION_CPU_PREFILL_AMX_TILES_INL_H_
#endif

#include <cstddef>

#include "attention/cpu/prefill_amx_split-inl.h"

// Tile products of the logits and of the values, as instructions that can be issued one by one.

#if QUEST_AMX_TARGET

// Offsets here stay inside one page, run or tile; those into the pool are 64-bit.
// NOLINTBEGIN(bugprone-implicit-widening-of-multiplication-result)
HWY_BEFORE_NAMESPACE();
namespace quest::cpu::HWY_NAMESPACE {

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

}  // namespace quest::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
// NOLINTEND(bugprone-implicit-widening-of-multiplication-result)

#endif  // QUEST_AMX_TARGET

#endif
