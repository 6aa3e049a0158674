// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0

// Per-target include guard.
#if defined(QUEST_ATTENTION_CPU_PREFILL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUEST_ATTENTION_CPU_PREFILL_INL_H_
#undef QUEST_ATTENTION_CPU_PREFILL_INL_H_
#else
#define QUEST_ATTENTION_CPU_PREFILL_INL_H_
#endif

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "attention/cpu/attend_q8-inl.h"
#include "attention/cpu/kernels.h"
#include "attention/cpu/prefill_layout.h"
#include "attention/cpu/simd-inl.h"

// Offsets here stay inside one page, run or tile; those into the pool are 64-bit.
// NOLINTBEGIN(bugprone-implicit-widening-of-multiplication-result)
HWY_BEFORE_NAMESPACE();
namespace quest::cpu::HWY_NAMESPACE {

/// Register block of both matrix products: kBlockRows virtual rows times two vectors.
inline constexpr int kBlockRows = kRegisters == 32 ? 8 : 4;
inline constexpr int kPrefillLanes = static_cast<int>(hn::MaxLanes(hn::ScalableTag<float>()));
/// Tokens of one panel of widened keys: [head_dim][kPanel], so that a panel streams.
inline constexpr int kPanel = 2 * kPrefillLanes;

/// One virtual row is one (position, head): row = position in tile * heads + head.
struct Tile {
  const PrefillArgs& args;
  PrefillScratch scratch;
  std::int32_t virtual_rows;

  /// Tokens of the run starting at `begin` that a virtual row may see.
  std::int32_t visible(std::int32_t row, std::int64_t begin, std::int32_t run) const {
    const std::int64_t end = args.first_position + row / args.heads + 1;
    return static_cast<std::int32_t>(std::clamp<std::int64_t>(end - begin, 0, run));
  }
};

/// Widens the keys of one page into the panels: [head_dim][page_size] to columns `column`… of the
/// run.
template <class Format, class D>
HWY_INLINE void widen_keys(D d, const typename Format::Element* k, std::int32_t page_size,
                           std::int32_t head_dim, std::int32_t column, float* panels) {
  constexpr std::int32_t kLanes = static_cast<std::int32_t>(hn::MaxLanes(d));
  for (std::int32_t t = 0; t < page_size; t += kLanes) {
    const std::int32_t c = column + t;
    float* to = panels + std::int64_t{c / kPanel} * head_dim * kPanel + c % kPanel;
    const auto* from = k + t;
    for (std::int32_t j = 0; j < head_dim; ++j) {
      hn::StoreU(load_wide(d, Format(), from), d, to);
      from += page_size;
      to += kPanel;
    }
  }
}

/// The same for a q8_0 page, whose scales follow its integers.
HWY_INLINE void widen_keys_q8(const std::int8_t* page, std::int32_t page_size,
                              std::int32_t head_dim, std::int32_t column, float* panels) {
  const auto* scales = reinterpret_cast<const std::uint16_t*>(page + page_size * head_dim);
  float scale[64];  // of the largest page
  for (std::int32_t j = 0; j < head_dim; j += 2) {
    if (j % kScaleBlock == 0) {
      for (std::int32_t t = 0; t < page_size; ++t) scale[t] = scale_at(scales, t);
      scales += page_size;
    }
    // A page may end inside a panel or reach over several.
    constexpr std::int32_t kStep = HWY_MIN(8, kPanel);
    for (std::int32_t t = 0; t < page_size; t += kStep) {
      const std::int32_t c = column + t;
      float* even = panels + (std::int64_t{c / kPanel} * head_dim + j) * kPanel + c % kPanel;
      for (std::int32_t i = t; i < t + kStep; ++i) {
        even[i - t] = scale[i] * static_cast<float>(page[2 * i]);
        even[i - t + kPanel] = scale[i] * static_cast<float>(page[2 * i + 1]);
      }
    }
    page += 2 * page_size;
  }
}

/// Widens the first `tokens` values of a q8_0 page to [tokens, head_dim].
HWY_INLINE void widen_values_q8(const std::int8_t* page, std::int32_t page_size,
                                std::int32_t head_dim, std::int32_t tokens, float* to) {
  const hn::ScalableTag<float> d;
  const auto* scales = reinterpret_cast<const std::uint16_t*>(page + page_size * head_dim);
  for (std::int32_t t = 0; t < tokens; ++t) {
    for (std::int32_t j = 0; j < head_dim; j += kPrefillLanes) {
      const auto scale = hn::Set(d, scale_at(scales, j / kScaleBlock * page_size + t));
      hn::StoreU(hn::Mul(scale, load_integers(d, page + j)), d, to + j);
    }
    page += head_dim;
    to += head_dim;
  }
}

/// Widens keys and values of tokens [begin, begin + run), a whole number of pages but for the end.
/// Values after the last token are not touched; keys are, and masked later.
template <class Format>
void widen_run(const Tile& tile, std::int64_t begin, std::int32_t run) {
  using Element = typename Format::Element;
  const HeadPages& pages = tile.args.pages;
  const std::int32_t size = pages.page_size;
  const hn::ScalableTag<float> d;
  const hn::CappedTag<float, 8> d8;
  constexpr std::int32_t kLanes = kPrefillLanes;
  for (std::int32_t t = 0; t < run; t += size) {
    const std::int64_t offset = std::int64_t{pages.table[(begin + t) / size]} * pages.stride;
    const auto* k = reinterpret_cast<const Element*>(pages.k + offset);
    const auto* v = reinterpret_cast<const Element*>(pages.v + offset);
    if constexpr (std::is_same_v<Format, Q8>) {
      widen_keys_q8(k, size, pages.head_dim, t, tile.scratch.keys);
      widen_values_q8(v, size, pages.head_dim, std::min(size, run - t),
                      tile.scratch.values + std::int64_t{t} * pages.head_dim);
    } else {
      if (size >= kLanes) {
        widen_keys<Format>(d, k, size, pages.head_dim, t, tile.scratch.keys);
      } else {
        widen_keys<Format>(d8, k, size, pages.head_dim, t, tile.scratch.keys);
      }
      const std::int32_t elements = std::min(size, run - t) * pages.head_dim;
      float* to = tile.scratch.values + std::int64_t{t} * pages.head_dim;
      for (std::int32_t i = 0; i < elements; i += kLanes) {
        hn::StoreU(load_wide(d, Format(), v + i), d, to + i);
      }
    }
  }
}

/// logits[r][0 … kPanel) = q[r] · panel for kRows rows.
template <int kRows>
HWY_INLINE void panel_logits(const float* HWY_RESTRICT q, const float* HWY_RESTRICT panel,
                             std::int32_t head_dim, float* HWY_RESTRICT logits) {
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  V sum[kRows][2];
  QUEST_UNROLL
  for (int r = 0; r < kRows; ++r) sum[r][0] = sum[r][1] = hn::Zero(d);
  for (std::int32_t j = 0; j < head_dim; ++j) {
    const V k0 = hn::LoadU(d, panel);
    const V k1 = hn::LoadU(d, panel + kPrefillLanes);
    panel += kPanel;
    QUEST_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const V x = hn::Set(d, q[r * head_dim + j]);
      sum[r][0] = hn::MulAdd(x, k0, sum[r][0]);
      sum[r][1] = hn::MulAdd(x, k1, sum[r][1]);
    }
  }
  QUEST_UNROLL
  for (int r = 0; r < kRows; ++r) {
    hn::StoreU(sum[r][0], d, logits + r * kPrefillLogitStride);
    hn::StoreU(sum[r][1], d, logits + r * kPrefillLogitStride + kPrefillLanes);
  }
}

/// o[r] = o[r] · rescale[r] + Σ_t weights[r][t] · v[t] over kVectors vectors of channels.
template <int kRows, int kVectors>
HWY_INLINE void block_values(const float* HWY_RESTRICT weights, const float* HWY_RESTRICT rescale,
                             const float* HWY_RESTRICT v, std::int32_t tokens,
                             std::int32_t head_dim, float* HWY_RESTRICT o) {
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  V sum[kRows][kVectors];
  QUEST_UNROLL
  for (int r = 0; r < kRows; ++r) {
    const V factor = hn::Set(d, rescale[r]);
    QUEST_UNROLL
    for (int i = 0; i < kVectors; ++i) {
      sum[r][i] = hn::Mul(factor, hn::LoadU(d, o + r * head_dim + i * kPrefillLanes));
    }
  }
  for (std::int32_t t = 0; t < tokens; ++t) {
    V x[kVectors];
    QUEST_UNROLL
    for (int i = 0; i < kVectors; ++i) x[i] = hn::LoadU(d, v + i * kPrefillLanes);
    v += head_dim;
    QUEST_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const V weight = hn::Set(d, weights[r * kPrefillLogitStride + t]);
      QUEST_UNROLL
      for (int i = 0; i < kVectors; ++i) sum[r][i] = hn::MulAdd(weight, x[i], sum[r][i]);
    }
  }
  QUEST_UNROLL
  for (int r = 0; r < kRows; ++r) {
    QUEST_UNROLL
    for (int i = 0; i < kVectors; ++i) {
      hn::StoreU(sum[r][i], d, o + r * head_dim + i * kPrefillLanes);
    }
  }
}

/// o += Σ over tokens [begin, end) of one row: the ragged rest that its block does not share.
HWY_INLINE void row_values(const float* HWY_RESTRICT weights, const float* HWY_RESTRICT values,
                           std::int32_t begin, std::int32_t end, std::int32_t head_dim,
                           float* HWY_RESTRICT o) {
  const hn::ScalableTag<float> d;
  for (std::int32_t t = begin; t < end; ++t) {
    const auto weight = hn::Set(d, weights[t]);
    const float* v = values + std::int64_t{t} * head_dim;
    for (std::int32_t j = 0; j < head_dim; j += kPrefillLanes) {
      hn::StoreU(hn::MulAdd(weight, hn::LoadU(d, v + j), hn::LoadU(d, o + j)), d, o + j);
    }
  }
}

/// One run of keys and values for kRows virtual rows from `row` on.
template <int kRows>
void block_run(const Tile& tile, RunningSoftmax* states, std::int32_t row, std::int64_t begin,
               std::int32_t run) {
  const std::int32_t head_dim = tile.args.pages.head_dim;
  // Rows are in order of position: the last sees most.
  const std::int32_t most = tile.visible(row + kRows - 1, begin, run);
  if (most == 0) return;
  float* const logits = tile.scratch.logits;
  const float* const q = tile.scratch.q + std::int64_t{row} * head_dim;
  for (std::int32_t t = 0; t < most; t += kPanel) {
    panel_logits<kRows>(q, tile.scratch.keys + std::int64_t{t} * head_dim, head_dim, logits + t);
  }
  float rescale[kRows];
  std::int32_t seen[kRows];
  for (int r = 0; r < kRows; ++r) {
    seen[r] = tile.visible(row + r, begin, run);
    rescale[r] = seen[r] == 0 ? 1.0F
                              : fold_softmax(states[row + r], logits + r * kPrefillLogitStride,
                                             seen[r], tile.args.scale);
  }
  const std::int32_t shared = seen[0];
  float* const o = tile.scratch.o + std::int64_t{row} * head_dim;
  std::int32_t c = 0;
  for (; c + kPanel <= head_dim; c += kPanel) {
    block_values<kRows, 2>(logits, rescale, tile.scratch.values + c, shared, head_dim, o + c);
  }
  for (; c < head_dim; c += kPrefillLanes) {
    block_values<kRows, 1>(logits, rescale, tile.scratch.values + c, shared, head_dim, o + c);
  }
  for (int r = 0; r < kRows; ++r) {
    row_values(logits + r * kPrefillLogitStride, tile.scratch.values, shared, seen[r], head_dim,
               o + std::int64_t{r} * head_dim);
  }
}

/// kRows as a constant for the rows left after the whole blocks.
template <int kRows>
HWY_INLINE void rest_run(const Tile& tile, RunningSoftmax* states, std::int32_t row,
                         std::int64_t begin, std::int32_t run) {
  if constexpr (kRows > 0) {
    if (tile.virtual_rows - row == kRows) {
      block_run<kRows>(tile, states, row, begin, run);
    } else {
      rest_run<kRows - 1>(tile, states, row, begin, run);
    }
  }
}

HWY_INLINE void load_queries(const Tile& tile) {
  const std::size_t bytes = sizeof(float) * static_cast<std::size_t>(tile.args.heads) *
                            static_cast<std::size_t>(tile.args.pages.head_dim);
  float* to = tile.scratch.q;
  for (std::int32_t i = 0; i < tile.args.rows; ++i) {
    std::memcpy(to, tile.args.q + i * tile.args.q_stride, bytes);
    to += tile.args.heads * tile.args.pages.head_dim;
  }
}

HWY_INLINE void store_outputs(const Tile& tile, const RunningSoftmax* states) {
  const std::int32_t head_dim = tile.args.pages.head_dim;
  for (std::int32_t row = 0; row < tile.virtual_rows; ++row) {
    const float* o = tile.scratch.o + std::int64_t{row} * head_dim;
    float* out = tile.args.out + row / tile.args.heads * tile.args.out_stride +
                 row % tile.args.heads * head_dim;
    const float sum = states[row].sum;
    const float factor = sum == 0 ? 0.0F : 1.0F / sum;
    for (std::int32_t j = 0; j < head_dim; ++j) out[j] = o[j] * factor;
  }
}

template <class Format>
void prefill(const PrefillArgs& args) {
  const std::int32_t virtual_rows = args.rows * args.heads;
  const std::int32_t head_dim = args.pages.head_dim;
  const Tile tile{args, PrefillScratch(args.scratch, virtual_rows, head_dim), virtual_rows};
  load_queries(tile);
  std::fill_n(tile.scratch.o, std::int64_t{virtual_rows} * head_dim, 0.0F);
  // The states live in the scratch too: a tile has no fixed number of rows.
  static_assert(sizeof(RunningSoftmax) == kPrefillStateFloats * sizeof(float));
  auto* const states = reinterpret_cast<RunningSoftmax*>(tile.scratch.states);
  std::fill_n(states, virtual_rows, RunningSoftmax{});

  const std::int64_t end = args.first_position + args.rows;
  const std::int32_t most = prefill_run(head_dim);
  for (std::int64_t begin = 0; begin < end; begin += most) {
    const auto run = static_cast<std::int32_t>(std::min<std::int64_t>(most, end - begin));
    widen_run<Format>(tile, begin, run);
    std::int32_t row = 0;
    for (; row + kBlockRows <= virtual_rows; row += kBlockRows) {
      block_run<kBlockRows>(tile, states, row, begin, run);
    }
    rest_run<kBlockRows - 1>(tile, states, row, begin, run);
  }
  store_outputs(tile, states);
}

}  // namespace quest::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
// NOLINTEND(bugprone-implicit-widening-of-multiplication-result)

#endif
