// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0

// Per-target include guard.
#if defined(QUEST_ATTENTION_CPU_ATTEND_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUEST_ATTENTION_CPU_ATTEND_INL_H_
#undef QUEST_ATTENTION_CPU_ATTEND_INL_H_
#else
#define QUEST_ATTENTION_CPU_ATTEND_INL_H_
#endif

#include <type_traits>

#include "attention/cpu/attend_q8-inl.h"
#include "attention/cpu/kernels.h"
#include "attention/cpu/simd-inl.h"
#include "attention/cpu/value_rows-inl.h"
#include "quest/paged_kv.h"

// Offsets here stay inside one page, run or tile; those into the pool are 64-bit.
// NOLINTBEGIN(bugprone-implicit-widening-of-multiplication-result)
HWY_BEFORE_NAMESPACE();
namespace quest::cpu::HWY_NAMESPACE {

/// Greatest power of two, at most `limit`, that `n` allows.
constexpr int power_of_two_at_most(int n, int limit) {
  int p = 1;
  while (2 * p <= n && 2 * p <= limit) p *= 2;
  return p;
}

/// Channels to work on at once: a power of two, so that at least eight additions are under way,
/// unless that takes more than the registers.
constexpr int channels_in_flight(int sums_a_channel) {
  int channels = 1;
  while (channels * sums_a_channel < 8 && 2 * channels * sums_a_channel + 2 <= kRegisters) {
    channels *= 2;
  }
  return channels;
}

/// q·k for kHeads heads and the kSize tokens of one page. K lies by channel, so a vector holds
/// tokens and nothing is summed across lanes. q: [head_dim, kHeads]. `next` is a page to prefetch.
template <class Format, int kSize, int kHeads>
HWY_NOINLINE void page_logits(const float* HWY_RESTRICT q, std::int32_t head_dim,
                              const std::byte* HWY_RESTRICT page, const std::byte* next,
                              float* HWY_RESTRICT logits) {
  using Element = typename Format::Element;
  const auto* const k = reinterpret_cast<const Element*>(page);
  const hn::CappedTag<float, kSize> d;
  using V = hn::Vec<decltype(d)>;
  constexpr int kLanes = static_cast<int>(hn::MaxLanes(d));
  constexpr int kVectors = kSize / kLanes;
  // Token vectors side by side share the broadcast of q; channels in flight make up the chains of
  // dependent additions that hide their latency.
  constexpr int kWide = (kVectors >= 2 && kHeads * 2 + 3 <= kRegisters) ? 2 : 1;
  constexpr int kChannels = channels_in_flight(kHeads * kWide);
  constexpr std::size_t kStepBytes = sizeof(Element) * kSize * kChannels;

  for (int w = 0; w < kVectors; w += kWide) {
    V sum[kChannels][kHeads][kWide];
    QUEST_UNROLL
    for (int c = 0; c < kChannels; ++c) {
      QUEST_UNROLL
      for (int h = 0; h < kHeads; ++h) {
        QUEST_UNROLL
        for (int i = 0; i < kWide; ++i) sum[c][h][i] = hn::Zero(d);
      }
    }
    const Element* HWY_RESTRICT row = k + w * kLanes;
    const float* HWY_RESTRICT qj = q;
    for (std::int32_t j = 0; j < head_dim; j += kChannels) {
      if (w == 0) {
        const std::size_t offset = sizeof(Element) * kSize * static_cast<std::size_t>(j);
        if (kStepBytes >= 64 || offset % 64 == 0) prefetch_lines<kStepBytes>(next + offset);
      }
      QUEST_UNROLL
      for (int c = 0; c < kChannels; ++c) {
        V x[kWide];
        QUEST_UNROLL
        for (int i = 0; i < kWide; ++i) x[i] = load_wide(d, Format(), row + i * kLanes);
        QUEST_UNROLL
        for (int h = 0; h < kHeads; ++h) {
          const V qv = hn::Set(d, qj[h]);
          QUEST_UNROLL
          for (int i = 0; i < kWide; ++i) sum[c][h][i] = hn::MulAdd(qv, x[i], sum[c][h][i]);
        }
        row += kSize;
        qj += kHeads;
      }
    }
    QUEST_UNROLL
    for (int h = 0; h < kHeads; ++h) {
      QUEST_UNROLL
      for (int i = 0; i < kWide; ++i) {
        V total = sum[0][h][i];
        QUEST_UNROLL
        for (int c = 1; c < kChannels; ++c) total = hn::Add(total, sum[c][h][i]);
        hn::StoreU(total, d, logits + h * kAttendLogitStride + (w + i) * kLanes);
      }
    }
  }
}

/// o[h] += Σ_t weights[h][t] · v[t] over channels [0, kVectors · lanes) of `tokens` values.
template <class Format, int kHeads, int kVectors, class Rows>
HWY_INLINE void add_values(const float* HWY_RESTRICT weights, const Rows& rows, std::int32_t tokens,
                           std::int32_t head_dim, float* HWY_RESTRICT o) {
  using Element = typename Format::Element;
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  constexpr int kLanes = static_cast<int>(hn::MaxLanes(d));
  V sum[kHeads][kVectors];
  QUEST_UNROLL
  for (int h = 0; h < kHeads; ++h) {
    QUEST_UNROLL
    for (int i = 0; i < kVectors; ++i) sum[h][i] = hn::LoadU(d, o + h * head_dim + i * kLanes);
  }
  for (std::int32_t t = 0; t < tokens; ++t) {
    rows.template prefetch<sizeof(Element) * kVectors * kLanes>(t);
    const Element* const v = rows.at(t);
    // The smaller side of the block stays in registers while the other streams past it.
    if constexpr (kHeads <= kVectors) {
      V weight[kHeads];
      QUEST_UNROLL
      for (int h = 0; h < kHeads; ++h) weight[h] = hn::Set(d, weights[h * kAttendLogitStride + t]);
      QUEST_UNROLL
      for (int i = 0; i < kVectors; ++i) {
        const V x = load_wide(d, Format(), v + i * kLanes);
        QUEST_UNROLL
        for (int h = 0; h < kHeads; ++h) sum[h][i] = hn::MulAdd(weight[h], x, sum[h][i]);
      }
    } else {
      V x[kVectors];
      QUEST_UNROLL
      for (int i = 0; i < kVectors; ++i) x[i] = load_wide(d, Format(), v + i * kLanes);
      QUEST_UNROLL
      for (int h = 0; h < kHeads; ++h) {
        const V weight = hn::Set(d, weights[h * kAttendLogitStride + t]);
        QUEST_UNROLL
        for (int i = 0; i < kVectors; ++i) sum[h][i] = hn::MulAdd(weight, x[i], sum[h][i]);
      }
    }
  }
  QUEST_UNROLL
  for (int h = 0; h < kHeads; ++h) {
    QUEST_UNROLL
    for (int i = 0; i < kVectors; ++i) hn::StoreU(sum[h][i], d, o + h * head_dim + i * kLanes);
  }
}

/// add_values over all channels, in the widest register blocks that fit. rows_from(c) are the rows
/// from channel c on.
template <class Format, int kHeads, class RowsFrom>
HWY_INLINE void add_all_values(const float* HWY_RESTRICT weights, const RowsFrom& rows_from,
                               std::int32_t tokens, std::int32_t head_dim, float* HWY_RESTRICT o) {
  constexpr int kLanes = static_cast<int>(hn::MaxLanes(hn::ScalableTag<float>()));
  constexpr int kBudget = kRegisters == 32 ? 24 : 12;
  constexpr int kWide = power_of_two_at_most(kBudget / kHeads, 8);
  std::int32_t c = 0;
  for (; c + kWide * kLanes <= head_dim; c += kWide * kLanes) {
    add_values<Format, kHeads, kWide>(weights, rows_from(c), tokens, head_dim, o + c);
  }
  if constexpr (kWide > 4) {
    for (; c + 4 * kLanes <= head_dim; c += 4 * kLanes) {
      add_values<Format, kHeads, 4>(weights, rows_from(c), tokens, head_dim, o + c);
    }
  }
  if constexpr (kWide > 1) {
    for (; c < head_dim; c += kLanes) {
      add_values<Format, kHeads, 1>(weights, rows_from(c), tokens, head_dim, o + c);
    }
  }
}

/// o[h] += Σ_t weights[h][t] · v[t] over a page.
template <class Format, int kHeads>
HWY_NOINLINE void page_values(const float* HWY_RESTRICT weights, const std::byte* HWY_RESTRICT page,
                              const std::byte* next, std::int32_t tokens, std::int32_t head_dim,
                              float* HWY_RESTRICT o) {
  using Element = typename Format::Element;
  const auto* const v = reinterpret_cast<const Element*>(page);
  add_all_values<Format, kHeads>(
      weights,
      [=](std::int32_t c) HWY_ATTR {
        return PageRows<Element>{v + c, next + sizeof(Element) * c, head_dim};
      },
      tokens, head_dim, o);
}

HWY_INLINE std::int64_t page_offset(const AttendArgs& args, std::int32_t i) {
  const std::int32_t logical = args.list == nullptr ? args.first + i : args.list[i];
  return std::int64_t{args.pages.table[logical]} * args.pages.stride;
}

/// Asks for a page's first line, and so for the translation of its address, long before the rest:
/// a run ahead. Only where pages do not lie in a row, which it would disturb.
HWY_INLINE void touch_page(const std::byte* page) { __builtin_prefetch(page, 0, 2); }

/// Bytes that the prefetches run ahead of the arithmetic, in whole pages. Where pages lie in a row
/// the processor's own prefetching runs further ahead, and more of ours only gets in its way.
inline constexpr std::int64_t kBytesAhead = 4096;

template <class Format, int kSize, int kHeads>
PageLogits page_logits_for_size() {
  if constexpr (std::is_same_v<Format, Q8>) {
    return page_logits_q8_for_machine<kSize, kHeads>();
  } else {
    return page_logits<Format, kSize, kHeads>;
  }
}

template <class Format, int kHeads>
PageLogits page_logits_of(std::int32_t page_size) {
  switch (page_size) {
    case 8:
      return page_logits_for_size<Format, 8, kHeads>();
    case 16:
      return page_logits_for_size<Format, 16, kHeads>();
    case 32:
      return page_logits_for_size<Format, 32, kHeads>();
    default:
      return page_logits_for_size<Format, 64, kHeads>();
  }
}

/// q of the pass as the logits of this format read it: channel by channel, [head_dim, kHeads].
template <class Format, int kHeads>
HWY_INLINE void prepare_query(const float* HWY_RESTRICT q, std::int32_t head_dim,
                              float* HWY_RESTRICT to) {
  if constexpr (std::is_same_v<Format, Q8>) {
    prepare_query_q8<kHeads>(q, head_dim, to);
  } else {
    for (int h = 0; h < kHeads; ++h) {
      for (std::int32_t j = 0; j < head_dim; ++j) to[j * kHeads + h] = q[h * head_dim + j];
    }
  }
}

HWY_INLINE void scale_row(float* x, std::int32_t count, float factor) {
  const hn::ScalableTag<float> d;
  for (std::int32_t j = 0; j < count; j += static_cast<std::int32_t>(hn::MaxLanes(d))) {
    hn::StoreU(hn::Mul(hn::LoadU(d, x + j), hn::Set(d, factor)), d, x + j);
  }
}

/// kHeads heads over the whole list, in runs of pages: logits, softmax, values.
template <class Format, int kHeads>
void attend_heads(const AttendArgs& args, std::int32_t first_head) {
  const std::int32_t head_dim = args.pages.head_dim;
  const std::int32_t size = args.pages.page_size;
  const std::int64_t page_bytes =
      std::int64_t{size} * head_dim * static_cast<std::int64_t>(sizeof(typename Format::Element));
  const auto pages_ahead = static_cast<std::int32_t>(HWY_MAX(1, kBytesAhead / page_bytes));
  const PageLogits logits_of_page = page_logits_of<Format, kHeads>(size);
  float* const logits = args.scratch;
  float* const q = args.scratch + kMaxHeadsInPass * kAttendLogitStride;
  float* const o = args.o + std::int64_t{first_head} * head_dim;
  prepare_query<Format, kHeads>(args.q + std::int64_t{first_head} * head_dim, head_dim, q);
  for (std::int32_t i = 0; i < kHeads * head_dim; ++i) o[i] = 0;

  RunningSoftmax state[kHeads];
  const std::int32_t run_pages = kAttendRun / size;
  const bool scattered = args.list != nullptr;
  for (std::int32_t begin = 0; begin < args.count; begin += run_pages) {
    const std::int32_t end = HWY_MIN(args.count, begin + run_pages);
    const bool last = end == args.count;
    const std::int32_t tokens = (end - begin) * size - (last ? size - args.last_tokens : 0);
    // Keys of the run, then its values, then the next run's keys: that is the order of prefetches.
    for (std::int32_t i = begin; i < end; ++i) {
      const std::int32_t ahead = i + pages_ahead;
      const std::byte* next =
          ahead < end ? args.pages.k + page_offset(args, ahead)
                      : args.pages.v + page_offset(args, HWY_MIN(begin + ahead - end, end - 1));
      logits_of_page(q, head_dim, args.pages.k + page_offset(args, i), next,
                     logits + (i - begin) * size);
      if (scattered) touch_page(args.pages.v + page_offset(args, i));
    }
    for (int h = 0; h < kHeads; ++h) {
      // Slots past the valid tokens were computed from padding; fold_softmax does not read them.
      const float rescale =
          fold_softmax(state[h], logits + h * kAttendLogitStride, tokens, args.scale);
      if (rescale != 1.0F) scale_row(o + h * head_dim, head_dim, rescale);
    }
    for (std::int32_t i = begin; i < end; ++i) {
      const std::int32_t ahead = HWY_MIN(i + pages_ahead, args.count - 1);
      const std::byte* next =
          (ahead < end ? args.pages.v : args.pages.k) + page_offset(args, ahead);
      const std::int32_t valid = (last && i + 1 == end) ? args.last_tokens : size;
      const float* const weights = logits + (i - begin) * size;
      const std::byte* const page = args.pages.v + page_offset(args, i);
      if (scattered) {
        touch_page(args.pages.k + page_offset(args, HWY_MIN(i + run_pages, args.count - 1)));
      }
      if constexpr (std::is_same_v<Format, Q8>) {
        page_values_q8<kHeads>(weights, page, next, size, valid, head_dim, o);
      } else {
        page_values<Format, kHeads>(weights, page, next, valid, head_dim, o);
      }
    }
  }
  for (int h = 0; h < kHeads; ++h) {
    const float factor = state[h].to_natural(args.scale);
    scale_row(o + h * head_dim, head_dim, factor);
    args.max[first_head + h] = state[h].greatest * args.scale;
    args.sum[first_head + h] = state[h].sum * factor;
  }
}

/// Heads of one pass. The scalar fallback gains nothing from wide ones, and sanitizer builds are
/// spared the minutes that the wide instances of the same templates take to compile.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr std::int32_t kPassHeads = 3;
#else
inline constexpr std::int32_t kPassHeads = HWY_TARGET == HWY_SCALAR ? 2 : kMaxHeadsInPass;
#endif

template <class Format, int kHeads>
HWY_INLINE void attend_pass(const AttendArgs& args, std::int32_t first_head, std::int32_t heads) {
  if constexpr (kHeads == 1) {
    attend_heads<Format, 1>(args, first_head);
  } else if (heads == kHeads) {
    attend_heads<Format, kHeads>(args, first_head);
  } else {
    attend_pass<Format, kHeads - 1>(args, first_head, heads);
  }
}

template <class Format>
void attend(const AttendArgs& args) {
  for (std::int32_t head = 0; head < args.heads;) {
    // 9 to 15 heads go in two passes of about equal size instead of eight and a few.
    const std::int32_t left = args.heads - head;
    const std::int32_t passes = (left + kPassHeads - 1) / kPassHeads;
    const std::int32_t heads = (left + passes - 1) / passes;
    attend_pass<Format, kPassHeads>(args, head, heads);
    head += heads;
  }
}

}  // namespace quest::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
// NOLINTEND(bugprone-implicit-widening-of-multiplication-result)

#endif
