// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "attention/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "attention/cpu/score.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "attention/cpu/kernel_getters.h"
#include "attention/cpu/score-inl.h"

HWY_BEFORE_NAMESPACE();
namespace quest::cpu::HWY_NAMESPACE {

ScoreKernel get_score_kernel(KvType type) {
  switch (type) {
    case KvType::kF32:
      return score<F32>;
    case KvType::kF16:
      return score<F16>;
    case KvType::kBF16:
      return score<BF16>;
  }
  return nullptr;
}

}  // namespace quest::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace quest::cpu {

HWY_EXPORT(get_score_kernel);

ScoreKernel score_kernel(KvType type) { return HWY_DYNAMIC_DISPATCH(get_score_kernel)(type); }

// Here because the answer depends on targets.h, like the dispatch.
std::vector<std::int64_t> runnable_targets() { return hwy::SupportedAndGeneratedTargets(); }

}  // namespace quest::cpu
#endif
