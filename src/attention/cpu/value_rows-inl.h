// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0

// Per-target include guard.
#if defined(QUEST_ATTENTION_CPU_VALUE_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUEST_ATTENTION_CPU_VALUE_ROWS_INL_H_
#undef QUEST_ATTENTION_CPU_VALUE_ROWS_INL_H_
#else
#define QUEST_ATTENTION_CPU_VALUE_ROWS_INL_H_
#endif

#include "attention/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace quest::cpu::HWY_NAMESPACE {

// Where the values of some tokens lie, and what to prefetch while they are added up.

/// Values that lie in a row, with the page to prefetch meanwhile.
template <class E>
struct PageRows {
  using Element = E;
  const Element* v;
  const std::byte* next;
  std::int32_t head_dim;

  HWY_INLINE const Element* at(std::int32_t t) const { return v + std::ptrdiff_t{t} * head_dim; }
  template <std::size_t kBytes>
  HWY_INLINE void prefetch(std::int32_t t) const {
    prefetch_lines<kBytes>(next + std::ptrdiff_t{t} * head_dim *
                                      static_cast<std::ptrdiff_t>(sizeof(Element)));
  }
};

/// Values here and there: one pointer a token, from channel `first` on.
template <class E>
struct ListedRows {
  using Element = E;
  const std::byte* const* rows;
  std::int32_t count;
  std::int32_t first;

  /// Tokens that the prefetches run ahead: where they lie is anybody's guess but ours.
  static constexpr std::int32_t kAhead = 64;

  HWY_INLINE const Element* at(std::int32_t t) const {
    return reinterpret_cast<const Element*>(rows[t]) + first;
  }
  template <std::size_t kBytes>
  HWY_INLINE void prefetch(std::int32_t t) const {
    prefetch_lines<kBytes>(reinterpret_cast<const std::byte*>(at(HWY_MIN(t + kAhead, count - 1))));
  }
};

}  // namespace quest::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
