// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0

// Per-target include guard.
#if defined(QUEST_ATTENTION_CPU_VALUES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUEST_ATTENTION_CPU_VALUES_INL_H_
#undef QUEST_ATTENTION_CPU_VALUES_INL_H_
#else
#define QUEST_ATTENTION_CPU_VALUES_INL_H_
#endif

#include "attention/cpu/attend-inl.h"

// Attention over part of a list in two passes: keys, and then the values that weigh enough.

HWY_BEFORE_NAMESPACE();
namespace quest::cpu::HWY_NAMESPACE {

/// Bytes that the prefetches of a first pass run ahead; it has nothing but keys to wait for.
inline constexpr std::int64_t kKeyBytesAhead = 8192;

/// Tokens of the run of a part that begins with page `first`.
HWY_INLINE std::int32_t run_tokens(const AttendArgs& part, std::int32_t first) {
  const std::int32_t size = part.pages.page_size;
  const std::int32_t left = (part.count - first) * size - (size - part.last_tokens);
  return HWY_MIN(left, kAttendRun);
}

/// Σ exp(scale · (x - greatest)) over x[0 … padded), whole vectors.
HWY_INLINE float weight_sum(const RunningSoftmax& state, const float* HWY_RESTRICT x,
                            std::int32_t padded, float scale) {
  const hn::ScalableTag<float> d;
  constexpr auto kLanes = static_cast<std::int32_t>(hn::MaxLanes(d));
  const auto factors = hn::Set(d, scale * kLog2E);
  const auto shifts = hn::Set(d, state.max == kNegInf ? 0.0F : state.max);
  auto total = hn::Zero(d);
  for (std::int32_t t = 0; t < padded; t += kLanes) {
    const auto w = exp2_not_positive(d, hn::MulSub(hn::LoadU(d, x + t), factors, shifts));
    total = hn::Add(total, w);
  }
  return hn::GetLane(hn::SumOfLanes(d, total));
}

/// The same weight of one x, as vectors of them come out.
HWY_INLINE float weight_of(const RunningSoftmax& state, float x, float scale) {
  const hn::ScalableTag<float> d;
  const auto t = hn::MulSub(hn::Set(d, x), hn::Set(d, scale * kLog2E),
                            hn::Set(d, state.max == kNegInf ? 0.0F : state.max));
  return hn::GetLane(exp2_not_positive(d, t));
}

/// The first pass for kHeads heads.
template <class Format, int kHeads>
void logits_of_heads(const AttendArgs& part, const PartLogits& to, std::int32_t first_head) {
  const hn::ScalableTag<float> d;
  constexpr auto kLanes = static_cast<std::int32_t>(hn::MaxLanes(d));
  const std::int32_t head_dim = part.pages.head_dim;
  const std::int32_t size = part.pages.page_size;
  const std::int32_t run_pages = kAttendRun / size;
  const PageLogits logits_of_page = page_logits_of<Format, kHeads>(size);
  prepare_query<Format, kHeads>(part.q + std::ptrdiff_t{first_head} * head_dim, head_dim,
                                part.scratch);
  const auto page_bytes =
      std::int64_t{size} * head_dim * static_cast<std::int64_t>(sizeof(typename Format::Element));
  const auto ahead = static_cast<std::int32_t>(HWY_MAX(1, kKeyBytesAhead / page_bytes));
  const std::ptrdiff_t run_floats = std::ptrdiff_t{part.heads} * kAttendLogitStride;
  RunningSoftmax state[kHeads];
  float* logits = to.runs + std::ptrdiff_t{first_head} * kAttendLogitStride;
  for (std::int32_t begin = 0; begin < part.count; begin += run_pages, logits += run_floats) {
    const std::int32_t end = HWY_MIN(part.count, begin + run_pages);
    for (std::int32_t i = begin; i < end; ++i) {
      touch_page(part.pages.k + page_offset(part, HWY_MIN(i + run_pages, part.count - 1)));
      logits_of_page(part.scratch, head_dim, part.pages.k + page_offset(part, i),
                     part.pages.k + page_offset(part, HWY_MIN(i + ahead, part.count - 1)),
                     logits + std::ptrdiff_t{i - begin} * size);
    }
    const std::int32_t tokens = run_tokens(part, begin);
    const std::int32_t padded = (tokens + kLanes - 1) / kLanes * kLanes;
    for (int h = 0; h < kHeads; ++h) {
      float* const x = logits + std::ptrdiff_t{h} * kAttendLogitStride;
      for (std::int32_t t = tokens; t < padded; ++t) x[t] = kNegInf;
      state[h].greatest = HWY_MAX(state[h].greatest, greatest(d, x, padded));
    }
  }
  for (int h = 0; h < kHeads; ++h) {
    state[h].max = state[h].greatest * (part.scale * kLog2E);
    const float* x = to.runs + std::ptrdiff_t{first_head + h} * kAttendLogitStride;
    for (std::int32_t begin = 0; begin < part.count; begin += run_pages, x += run_floats) {
      const std::int32_t tokens = run_tokens(part, begin);
      state[h].sum += weight_sum(state[h], x, (tokens + kLanes - 1) / kLanes * kLanes, part.scale);
    }
    to.greatest[first_head + h] = state[h].greatest;
    to.sum[first_head + h] = state[h].sum * state[h].to_natural(part.scale);
  }
}

/// Turns the logits of one run, [heads, kAttendLogitStride], into weights, and moves those of the
/// tokens that are heavy enough for some head to the front of their rows, in order. slots: where in
/// the run the tokens stand, [kAttendRun + lanes]. cuts: like ValuesArgs::cut, for these weights.
/// Returns the number of tokens kept.
HWY_INLINE std::int32_t keep_heavy(float* HWY_RESTRICT x, std::int32_t heads, std::int32_t tokens,
                                   float scale, const float* HWY_RESTRICT maxima,
                                   const float* HWY_RESTRICT cuts,
                                   std::int32_t* HWY_RESTRICT slots) {
  const hn::ScalableTag<float> d;
  const hn::RebindToSigned<decltype(d)> d32;
  constexpr auto kLanes = static_cast<std::int32_t>(hn::MaxLanes(d));
  const auto factors = hn::Set(d, scale * kLog2E);
  std::int32_t kept = 0;
  for (std::int32_t t = 0; t < tokens; t += kLanes) {
    const auto valid = hn::FirstN(d, static_cast<std::size_t>(tokens - t));
    auto light = valid;
    for (std::int32_t h = 0; h < heads; ++h) {
      float* const row = x + std::ptrdiff_t{h} * kAttendLogitStride + t;
      const auto shifts = hn::Set(d, maxima[h] == kNegInf ? 0.0F : maxima[h]);
      const auto w = exp2_not_positive(d, hn::MulSub(hn::LoadU(d, row), factors, shifts));
      hn::StoreU(w, d, row);
      light = hn::And(light, hn::Lt(w, hn::Set(d, cuts[h])));  // NaN is not light
    }
    const auto heavy = hn::AndNot(light, valid);
    // Whole vectors are stored; what follows the tokens kept is overwritten by the next ones, or
    // was read already.
    for (std::int32_t h = 0; h < heads; ++h) {
      float* const row = x + std::ptrdiff_t{h} * kAttendLogitStride;
      hn::CompressStore(hn::LoadU(d, row + t), heavy, d, row + kept);
    }
    kept += static_cast<std::int32_t>(
        hn::CompressStore(hn::Iota(d32, t), hn::RebindMask(d32, heavy), d32, slots + kept));
  }
  return kept;
}

/// Sum of x[0 … count); entries up to the next whole vector must be readable.
HWY_INLINE float sum_of(const float* HWY_RESTRICT x, std::int32_t count) {
  const hn::ScalableTag<float> d;
  constexpr auto kLanes = static_cast<std::int32_t>(hn::MaxLanes(d));
  auto total = hn::Zero(d);
  for (std::int32_t t = 0; t < count; t += kLanes) {
    const auto valid = hn::FirstN(d, static_cast<std::size_t>(count - t));
    total = hn::Add(total, hn::IfThenElseZero(valid, hn::LoadU(d, x + t)));
  }
  return hn::GetLane(hn::SumOfLanes(d, total));
}

/// The kept values of one run of q8_0 pages. scales: of each token, those of its blocks lie
/// page_size apart.
template <int kHeads>
HWY_NOINLINE void listed_values_q8(const float* HWY_RESTRICT weights, const std::byte* const* rows,
                                   const std::uint16_t* const* scales, std::int32_t page_size,
                                   std::int32_t tokens, std::int32_t head_dim,
                                   float* HWY_RESTRICT o) {
  alignas(64) float scaled[kHeads * kAttendLogitStride];
  for (std::int32_t first = 0, block = 0; first < head_dim; first += kScaleBlock, ++block) {
    for (std::int32_t t = 0; t < tokens; ++t) {
      const float scale = scale_at(scales[t], block * page_size);
      for (int h = 0; h < kHeads; ++h) {
        scaled[h * kAttendLogitStride + t] = scale * weights[h * kAttendLogitStride + t];
      }
    }
    add_block_of_integers<kHeads, kAttendLogitStride>(
        scaled,
        [=](std::int32_t c) HWY_ATTR {
          return ListedRows<std::int8_t>{rows, tokens, c};
        },
        first, HWY_MIN(first + kScaleBlock, head_dim), tokens, head_dim, o);
  }
}

template <class Format, int kHeads>
HWY_NOINLINE void listed_values(const float* HWY_RESTRICT weights, const std::byte* const* rows,
                                std::int32_t tokens, std::int32_t head_dim, float* HWY_RESTRICT o) {
  using Element = typename Format::Element;
  add_all_values<Format, kHeads>(
      weights,
      [=](std::int32_t c) HWY_ATTR {
        return ListedRows<Element>{rows, tokens, c};
      },
      tokens, head_dim, o);
}

/// Where the kept values of one run lie.
struct KeptValues {
  const std::byte* rows[kAttendRun];
  const std::uint16_t* scales[kAttendRun];  ///< of the first block; q8_0 alone
  std::int32_t tokens = 0;
};

template <class Format, int kHeads>
HWY_INLINE void add_kept(const ValuesArgs& args, const float* weights, const KeptValues& kept,
                         std::int32_t first_head, std::int32_t heads) {
  if constexpr (kHeads > 1) {
    if (heads < kHeads) {
      return add_kept<Format, kHeads - 1>(args, weights, kept, first_head, heads);
    }
  }
  const std::int32_t head_dim = args.part.pages.head_dim;
  weights += std::ptrdiff_t{first_head} * kAttendLogitStride;
  float* const o = args.part.o + std::ptrdiff_t{first_head} * head_dim;
  if constexpr (std::is_same_v<Format, Q8>) {
    listed_values_q8<kHeads>(weights, kept.rows, kept.scales, args.part.pages.page_size,
                             kept.tokens, head_dim, o);
  } else {
    listed_values<Format, kHeads>(weights, kept.rows, kept.tokens, head_dim, o);
  }
}

/// Points at the values of the kept slots of the run that begins with page `first`, and asks for
/// the first of them.
template <class Format>
HWY_INLINE void locate(const AttendArgs& part, std::int32_t first, const std::int32_t* slots,
                       KeptValues& kept) {
  const std::int32_t size = part.pages.page_size;
  const std::ptrdiff_t row_bytes = std::ptrdiff_t{part.pages.head_dim} *
                                   static_cast<std::ptrdiff_t>(sizeof(typename Format::Element));
  for (std::int32_t i = 0; i < kept.tokens; ++i) {
    const std::int32_t slot = slots[i] % size;
    const std::byte* const page = part.pages.v + page_offset(part, first + slots[i] / size);
    kept.rows[i] = page + slot * row_bytes;
    if constexpr (std::is_same_v<Format, Q8>) {
      kept.scales[i] = reinterpret_cast<const std::uint16_t*>(page + size * row_bytes) + slot;
    }
    if (i >= ListedRows<std::byte>::kAhead) continue;
    for (std::ptrdiff_t b = 0; b < row_bytes; b += 64) __builtin_prefetch(kept.rows[i] + b, 0, 2);
  }
}

/// The second pass.
template <class Format>
void values(const ValuesArgs& args) {
  const AttendArgs& part = args.part;
  const std::int32_t heads = part.heads;
  const std::int32_t head_dim = part.pages.head_dim;
  const std::int32_t run_pages = kAttendRun / part.pages.page_size;
  float* const maxima = part.max;  // until the end: of these weights
  float* const cuts = part.scratch;
  for (std::int32_t h = 0; h < heads; ++h) {
    RunningSoftmax state;
    state.greatest = args.greatest[h];
    state.max = state.greatest * (part.scale * kLog2E);
    maxima[h] = state.max;
    // The greatest weight is never light, whatever rounding makes of it.
    const float cut = args.cut[h] / state.to_natural(part.scale);
    const float top = weight_of(state, args.greatest[h], part.scale);
    cuts[h] = top < cut ? top : cut;
    part.sum[h] = 0;
  }
  for (std::int32_t i = 0; i < heads * head_dim; ++i) part.o[i] = 0;
  *args.tokens = 0;
  float* logits = args.runs;
  std::int32_t slots[kAttendRun + hn::MaxLanes(hn::ScalableTag<float>())];
  KeptValues kept;
  for (std::int32_t begin = 0; begin < part.count; begin += run_pages) {
    kept.tokens =
        keep_heavy(logits, heads, run_tokens(part, begin), part.scale, maxima, cuts, slots);
    *args.tokens += kept.tokens;
    if (kept.tokens > 0) {
      locate<Format>(part, begin, slots, kept);
      for (std::int32_t h = 0; h < heads; ++h) {
        part.sum[h] += sum_of(logits + std::ptrdiff_t{h} * kAttendLogitStride, kept.tokens);
      }
      for (std::int32_t head = 0; head < heads; head += kPassHeads) {
        add_kept<Format, kPassHeads>(args, logits, kept, head, HWY_MIN(heads - head, kPassHeads));
      }
    }
    logits += std::ptrdiff_t{heads} * kAttendLogitStride;
  }
  for (std::int32_t h = 0; h < heads; ++h) part.max[h] = args.greatest[h] * part.scale;
}

template <class Format, int kHeads>
HWY_INLINE void logits_pass(const AttendArgs& part, const PartLogits& to, std::int32_t first_head,
                            std::int32_t heads) {
  if constexpr (kHeads == 1) {
    logits_of_heads<Format, 1>(part, to, first_head);
  } else if (heads == kHeads) {
    logits_of_heads<Format, kHeads>(part, to, first_head);
  } else {
    logits_pass<Format, kHeads - 1>(part, to, first_head, heads);
  }
}

/// The first pass.
template <class Format>
void logits(const AttendArgs& part, const PartLogits& to) {
  for (std::int32_t head = 0; head < part.heads;) {
    const std::int32_t heads = HWY_MIN(part.heads - head, kPassHeads);
    logits_pass<Format, kPassHeads>(part, to, head, heads);
    head += heads;
  }
}

}  // namespace quest::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
