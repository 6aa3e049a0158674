// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0

// Per-target include guard.
#if defined(QUEST_ATTENTION_CPU_ATTEND_Q8_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUEST_ATTENTION_CPU_ATTEND_Q8_INL_H_
#undef QUEST_ATTENTION_CPU_ATTEND_Q8_INL_H_
#else
#define QUEST_ATTENTION_CPU_ATTEND_Q8_INL_H_
#endif

#include <cmath>
#include <cstring>

#include "attention/cpu/kernels.h"
#include "attention/cpu/simd-inl.h"
#include "attention/cpu/value_rows-inl.h"
#include "attention/cpu/vnni.h"
#include "quest/kv_type.h"

// Offsets here stay inside one page, run or tile; those into the pool are 64-bit.
// NOLINTBEGIN(bugprone-implicit-widening-of-multiplication-result)
HWY_BEFORE_NAMESPACE();
namespace quest::cpu::HWY_NAMESPACE {

/// Where x86 multiplies pairs of 16-bit integers into 32-bit sums, keys stay integers and q becomes
/// one, of 16 bits for each block of channels: finer than f16. Elsewhere both become floats.
#undef QUEST_INTEGER_DOTS
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
#define QUEST_INTEGER_DOTS 1
#else
#define QUEST_INTEGER_DOTS 0
#endif

using PageLogits = void (*)(const float*, std::int32_t, const std::byte*, const std::byte*, float*);

/// q as page_logits_q8 reads it, inside head_dim · kHeads floats of scratch.
template <int kHeads>
struct QueryQ8 {
  explicit QueryQ8(float* scratch, std::int32_t head_dim)
      : pairs(reinterpret_cast<std::int32_t*>(scratch)),
        scales(scratch + head_dim / 2 * kHeads),
        values(scratch) {}

  std::int32_t* pairs;  ///< [head_dim / 2, kHeads], two 16-bit channels each
  float* scales;        ///< [scale blocks, kHeads]
  float* values;        ///< without integer dots: [head_dim, kHeads]
};

template <int kHeads>
HWY_INLINE void prepare_query_q8(const float* HWY_RESTRICT q, std::int32_t head_dim,
                                 float* HWY_RESTRICT scratch) {
  const QueryQ8<kHeads> to(scratch, head_dim);
#if QUEST_INTEGER_DOTS
  for (int h = 0; h < kHeads; ++h) {
    for (std::int32_t first = 0; first < head_dim; first += kScaleBlock) {
      const std::int32_t end = HWY_MIN(first + kScaleBlock, head_dim);
      const float* row = q + h * head_dim;
      float most = 0;
      float total = 0;  // NaN or infinite if the block holds such a number
      for (std::int32_t j = first; j < end; ++j) {
        most = HWY_MAX(most, std::abs(row[j]));
        total += std::abs(row[j]);
      }
      const bool finite = total <= std::numeric_limits<float>::max();
      const float scale = most / 32767.0F;
      // A scale that underflows leaves zeros, and the block adds less than a float can hold.
      const float inverse = finite && scale > 1e-36F ? 1.0F / scale : 0.0F;
      for (std::int32_t j = first; j < end; j += 2) {
        std::int16_t pair[2];
        for (int i = 0; i < 2; ++i) {
          const float x = finite ? row[j + i] * inverse : 0.0F;
          pair[i] = static_cast<std::int16_t>(std::lrint(x));
        }
        std::memcpy(to.pairs + j / 2 * kHeads + h, pair, sizeof pair);
      }
      to.scales[first / kScaleBlock * kHeads + h] = finite ? scale : total - total;
    }
  }
#else
  for (int h = 0; h < kHeads; ++h) {
    for (std::int32_t j = 0; j < head_dim; ++j) to.values[j * kHeads + h] = q[h * head_dim + j];
  }
#endif
}

HWY_INLINE float scale_at(const std::uint16_t* scales, std::int32_t index) {
  const hn::CappedTag<float, 1> d1;
  return hn::GetLane(load_wide(d1, F16(), scales + index));
}

#if QUEST_INTEGER_DOTS

#if HWY_TARGET == HWY_AVX3

/// sum + pairwise products of 16-bit integers, q being the same pair for all lanes. Highway has no
/// target with AVX512-VNNI; whoever calls this has asked the processor.
HWY_INLINE hn::Vec512<std::int32_t> dot_pairs_vnni(hn::Vec512<std::int32_t> sum,
                                                   hn::Vec512<std::int16_t> x,
                                                   const std::int32_t& q) {
  asm("vpdpwssd %2%{1to16%}, %1, %0" : "+v"(sum.raw) : "v"(x.raw), "m"(q));
  return sum;
}
HWY_INLINE hn::Vec256<std::int32_t> dot_pairs_vnni(hn::Vec256<std::int32_t> sum,
                                                   hn::Vec256<std::int16_t> x,
                                                   const std::int32_t& q) {
  asm("vpdpwssd %2%{1to8%}, %1, %0" : "+v"(sum.raw) : "v"(x.raw), "m"(q));
  return sum;
}

#endif

/// The same in two instructions.
template <class V32, class V16>
HWY_INLINE V32 dot_pairs(V32 sum, V16 x, const std::int32_t& q) {
  const hn::DFromV<V32> d32;
  const hn::DFromV<V16> d16;
  V32 unused = sum;  // these targets sum neighbours, and into one vector alone
  return hn::ReorderWidenMulAccumulate(d32, x, hn::BitCast(d16, hn::Set(d32, q)), sum, unused);
}

/// q·k for kHeads heads and the kSize tokens of one page, as page_logits does for plain types.
template <int kSize, int kHeads, bool kVnni>
HWY_NOINLINE void page_logits_q8(const float* HWY_RESTRICT query, std::int32_t head_dim,
                                 const std::byte* HWY_RESTRICT page, const std::byte* next,
                                 float* HWY_RESTRICT logits) {
  const hn::CappedTag<std::int32_t, kSize> d32;
  const hn::Repartition<std::int16_t, decltype(d32)> d16;
  const hn::Rebind<std::int8_t, decltype(d16)> d8;
  const hn::RebindToFloat<decltype(d32)> d;
  using V = hn::Vec<decltype(d)>;
  using V32 = hn::Vec<decltype(d32)>;
  constexpr int kLanes = static_cast<int>(hn::MaxLanes(d32));
  constexpr int kVectors = kSize / kLanes;
  constexpr std::size_t kPairBytes = 2 * kSize;
  const QueryQ8<kHeads> q(const_cast<float*>(query), head_dim);
  const auto* const k = reinterpret_cast<const std::int8_t*>(page);
  const auto* const scales =
      reinterpret_cast<const std::uint16_t*>(page + static_cast<std::ptrdiff_t>(head_dim) * kSize);

  for (int w = 0; w < kVectors; ++w) {
    V total[kHeads];
    QUEST_UNROLL
    for (int h = 0; h < kHeads; ++h) total[h] = hn::Zero(d);
    for (std::int32_t first = 0, block = 0; first < head_dim; first += kScaleBlock, ++block) {
      const std::int32_t pairs = HWY_MIN(kScaleBlock, head_dim - first) / 2;
      const std::int32_t* HWY_RESTRICT qj = q.pairs + first / 2 * kHeads;
      const std::int8_t* HWY_RESTRICT row = k + first * kSize + 2 * w * kLanes;
      V32 sum[kHeads];
      QUEST_UNROLL
      for (int h = 0; h < kHeads; ++h) sum[h] = hn::Zero(d32);
      for (std::int32_t j = 0; j < pairs; ++j) {
        if (w == 0) {
          const std::size_t offset = kPairBytes * static_cast<std::size_t>(first / 2 + j);
          if (kPairBytes >= 64 || offset % 64 == 0) prefetch_lines<kPairBytes>(next + offset);
        }
        const auto x = hn::PromoteTo(d16, hn::LoadU(d8, row));
        QUEST_UNROLL
        for (int h = 0; h < kHeads; ++h) {
          if constexpr (kVnni) {
            sum[h] = dot_pairs_vnni(sum[h], x, qj[h]);
          } else {
            sum[h] = dot_pairs(sum[h], x, qj[h]);
          }
        }
        row += kPairBytes;
        qj += kHeads;
      }
      const V scale = load_wide(d, F16(), scales + block * kSize + w * kLanes);
      QUEST_UNROLL
      for (int h = 0; h < kHeads; ++h) {
        const V both = hn::Mul(scale, hn::Set(d, q.scales[block * kHeads + h]));
        total[h] = hn::MulAdd(hn::ConvertTo(d, sum[h]), both, total[h]);
      }
    }
    QUEST_UNROLL
    for (int h = 0; h < kHeads; ++h) {
      hn::StoreU(total[h], d, logits + h * kAttendLogitStride + w * kLanes);
    }
  }
}

#else

/// The same in plain loops over the tokens, for the compiler to vectorise.
template <int kSize, int kHeads, bool kVnni>
HWY_NOINLINE void page_logits_q8(const float* HWY_RESTRICT query, std::int32_t head_dim,
                                 const std::byte* HWY_RESTRICT page, const std::byte* next,
                                 float* HWY_RESTRICT logits) {
  const auto* const k = reinterpret_cast<const std::int8_t*>(page);
  const auto* const scales =
      reinterpret_cast<const std::uint16_t*>(page + static_cast<std::ptrdiff_t>(head_dim) * kSize);
  float total[kHeads][kSize] = {};
  for (std::int32_t first = 0, block = 0; first < head_dim; first += kScaleBlock, ++block) {
    const std::int32_t end = HWY_MIN(first + kScaleBlock, head_dim);
    float sum[kHeads][kSize] = {};
    for (std::int32_t j = first; j < end; j += 2) {
      const std::int8_t* row = k + j * kSize;
      if (j * kSize % 64 == 0) __builtin_prefetch(next + j * kSize, 0, 2);
      for (int h = 0; h < kHeads; ++h) {
        const float even = query[j * kHeads + h];
        const float odd = query[(j + 1) * kHeads + h];
        for (int t = 0; t < kSize; ++t) {
          sum[h][t] +=
              even * static_cast<float>(row[2 * t]) + odd * static_cast<float>(row[2 * t + 1]);
        }
      }
    }
    for (int t = 0; t < kSize; ++t) {
      const float scale = scale_at(scales, block * kSize + t);
      for (int h = 0; h < kHeads; ++h) total[h][t] += scale * sum[h][t];
    }
  }
  for (int h = 0; h < kHeads; ++h) {
    std::memcpy(logits + h * kAttendLogitStride, total[h], sizeof total[h]);
  }
}

#endif  // QUEST_INTEGER_DOTS

template <int kSize, int kHeads>
PageLogits page_logits_q8_for_machine() {
#if HWY_TARGET == HWY_AVX3
  if (uses_vnni()) return page_logits_q8<kSize, kHeads, true>;
#endif
  return page_logits_q8<kSize, kHeads, false>;
}

template <class D>
HWY_INLINE hn::Vec<D> load_integers(D d, const std::int8_t* p) {
  const hn::RebindToSigned<D> d32;
  const hn::Rebind<std::int8_t, D> d8;
  return hn::ConvertTo(d, hn::PromoteTo(d32, hn::LoadU(d8, p)));
}

/// o[h] += Σ_t weights[h][t] · v[t] over one block's channels [0, kVectors · lanes), the values'
/// scales being part of the weights already.
template <int kHeads, int kVectors, int kStride, class Rows>
HWY_INLINE void add_integers(const float* HWY_RESTRICT weights, const Rows& rows,
                             std::int32_t tokens, std::int32_t head_dim, float* HWY_RESTRICT o) {
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  constexpr int kLanes = static_cast<int>(hn::MaxLanes(d));
  // Few sums leave the adders waiting for each other: then even and odd tokens are summed apart.
  constexpr int kChains = kHeads * kVectors < 8 && 2 * kHeads * kVectors + 4 <= kRegisters ? 2 : 1;
  V sum[kChains][kHeads][kVectors];
  QUEST_UNROLL
  for (int h = 0; h < kHeads; ++h) {
    QUEST_UNROLL
    for (int i = 0; i < kVectors; ++i) {
      sum[0][h][i] = hn::LoadU(d, o + h * head_dim + i * kLanes);
      if constexpr (kChains == 2) sum[1][h][i] = hn::Zero(d);
    }
  }
  const auto add = [&](std::int32_t t, int chain) HWY_ATTR {
    V x[kVectors];
    QUEST_UNROLL
    for (int i = 0; i < kVectors; ++i) x[i] = load_integers(d, rows.at(t) + i * kLanes);
    QUEST_UNROLL
    for (int h = 0; h < kHeads; ++h) {
      const V weight = hn::Set(d, weights[h * kStride + t]);
      QUEST_UNROLL
      for (int i = 0; i < kVectors; ++i) {
        sum[chain][h][i] = hn::MulAdd(weight, x[i], sum[chain][h][i]);
      }
    }
  };
  std::int32_t t = 0;
  if constexpr (kChains == 2) {
    for (; t + 2 <= tokens; t += 2) {
      add(t, 0);
      add(t + 1, 1);
    }
  }
  for (; t < tokens; ++t) add(t, 0);
  QUEST_UNROLL
  for (int h = 0; h < kHeads; ++h) {
    QUEST_UNROLL
    for (int i = 0; i < kVectors; ++i) {
      V total = sum[0][h][i];
      if constexpr (kChains == 2) total = hn::Add(total, sum[1][h][i]);
      hn::StoreU(total, d, o + h * head_dim + i * kLanes);
    }
  }
}

/// add_integers over the channels [first, end) of one block, in the widest register blocks that
/// fit. rows_from(c) are the rows from channel c on.
template <int kHeads, int kStride, class RowsFrom>
HWY_INLINE void add_block_of_integers(const float* HWY_RESTRICT weights, const RowsFrom& rows_from,
                                      std::int32_t first, std::int32_t end, std::int32_t tokens,
                                      std::int32_t head_dim, float* HWY_RESTRICT o) {
  constexpr int kLanes = static_cast<int>(hn::MaxLanes(hn::ScalableTag<float>()));
  constexpr int kBlockVectors = kScaleBlock / kLanes;
  constexpr int kHalfVectors = HWY_MAX(1, kBlockVectors / 2);
  constexpr int kWide =
      kHeads * kBlockVectors + kBlockVectors + 1 <= kRegisters ? kBlockVectors : kHalfVectors;
  std::int32_t c = first;
  for (; c + kWide * kLanes <= end; c += kWide * kLanes) {
    add_integers<kHeads, kWide, kStride>(weights, rows_from(c), tokens, head_dim, o + c);
  }
  if constexpr (kWide > 1) {
    for (; c < end; c += kLanes) {
      add_integers<kHeads, 1, kStride>(weights, rows_from(c), tokens, head_dim, o + c);
    }
  }
}

/// o[h] += Σ_t weights[h][t] · v[t] over a whole page.
template <int kHeads>
HWY_NOINLINE void page_values_q8(const float* HWY_RESTRICT weights,
                                 const std::byte* HWY_RESTRICT page, const std::byte* next,
                                 std::int32_t page_size, std::int32_t tokens, std::int32_t head_dim,
                                 float* HWY_RESTRICT o) {
  constexpr int kStride = 64;  // the largest page
  const auto* const v = reinterpret_cast<const std::int8_t*>(page);
  const auto* const scales = reinterpret_cast<const std::uint16_t*>(
      page + static_cast<std::ptrdiff_t>(head_dim) * page_size);
  const std::int32_t bytes = head_dim * page_size;
  for (std::int32_t i = 0; i < bytes; i += 64) __builtin_prefetch(next + i, 0, 2);

  const hn::CappedTag<float, 8> d8;  // the smallest page
  constexpr std::int32_t kLanes8 = static_cast<std::int32_t>(hn::MaxLanes(d8));
  alignas(64) float scaled[kHeads * kStride];
  for (std::int32_t first = 0, block = 0; first < head_dim; first += kScaleBlock, ++block) {
    // Slots that were never written are scaled too, and not read.
    for (std::int32_t t = 0; t < page_size; t += kLanes8) {
      const auto scale = load_wide(d8, F16(), scales + block * page_size + t);
      QUEST_UNROLL
      for (int h = 0; h < kHeads; ++h) {
        const auto weight = hn::LoadU(d8, weights + h * kAttendLogitStride + t);
        hn::StoreU(hn::Mul(scale, weight), d8, scaled + h * kStride + t);
      }
    }
    add_block_of_integers<kHeads, kStride>(
        scaled,
        [=](std::int32_t c) HWY_ATTR {
          return PageRows<std::int8_t>{v + c, next, head_dim};
        },
        first, HWY_MIN(first + kScaleBlock, head_dim), tokens, head_dim, o);
  }
}

}  // namespace quest::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
// NOLINTEND(bugprone-implicit-widening-of-multiplication-result)

#endif
