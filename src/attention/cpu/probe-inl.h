// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0

// Per-target include guard.
#if defined(QUEST_ATTENTION_CPU_PROBE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUEST_ATTENTION_CPU_PROBE_INL_H_
#undef QUEST_ATTENTION_CPU_PROBE_INL_H_
#else
#define QUEST_ATTENTION_CPU_PROBE_INL_H_
#endif

#include "attention/cpu/attend-inl.h"

HWY_BEFORE_NAMESPACE();
namespace quest::cpu::HWY_NAMESPACE {

template <class Format, int kHeads>
void probe_heads(const ProbeArgs& args, std::int32_t first_head) {
  const std::int32_t head_dim = args.pages.head_dim;
  const std::int32_t size = args.pages.page_size;
  const PageLogits logits_of_page = page_logits_of<Format, kHeads>(size);
  const auto page = [&](std::int32_t i) {
    return args.pages.k + std::int64_t{args.pages.table[args.list[i]]} * args.pages.stride;
  };
  float* const logits = args.logits + std::int64_t{first_head} * kAttendLogitStride;
  prepare_query<Format, kHeads>(args.q + std::int64_t{first_head} * head_dim, head_dim,
                                args.scratch);
  for (std::int32_t i = 0; i < args.count; ++i) {
    logits_of_page(args.scratch, head_dim, page(i), page(HWY_MIN(i + 2, args.count - 1)),
                   logits + std::ptrdiff_t{i} * size);
  }
  if (args.sum == nullptr) return;
  const std::int32_t tokens = (args.count - 1) * size + args.last_tokens;
  for (int h = 0; h < kHeads; ++h) {
    RunningSoftmax state;
    fold_softmax(state, logits + std::ptrdiff_t{h} * kAttendLogitStride, tokens, args.scale);
    args.greatest[first_head + h] = state.greatest;
    args.sum[first_head + h] = state.sum;
  }
}

template <class Format, int kHeads>
HWY_INLINE void probe_pass(const ProbeArgs& args, std::int32_t first_head, std::int32_t heads) {
  if constexpr (kHeads == 1) {
    probe_heads<Format, 1>(args, first_head);
  } else if (heads == kHeads) {
    probe_heads<Format, kHeads>(args, first_head);
  } else {
    probe_pass<Format, kHeads - 1>(args, first_head, heads);
  }
}

template <class Format>
void probe(const ProbeArgs& args) {
  for (std::int32_t head = 0; head < args.heads;) {
    const std::int32_t heads = HWY_MIN(args.heads - head, kPassHeads);
    probe_pass<Format, kPassHeads>(args, head, heads);
    head += heads;
  }
}

}  // namespace quest::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
