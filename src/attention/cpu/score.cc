// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "attention/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "attention/cpu/score.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "attention/cpu/kernel_getters.h"
#include "attention/cpu/magnitude-inl.h"
#include "attention/cpu/score-inl.h"
#include "attention/cpu/score_q4-inl.h"
#include "attention/cpu/score_q8-inl.h"

HWY_BEFORE_NAMESPACE();
namespace quest::cpu::HWY_NAMESPACE {

ScoreKernel get_score_kernel(SummaryType summary, KvType element) {
  if (summary == SummaryType::kQ8) return score_q8;
  if (summary == SummaryType::kQ4) return score_q4;
  switch (element) {
    case KvType::kF32:
      return score<F32>;
    case KvType::kF16:
      return score<F16>;
    case KvType::kBF16:
      return score<BF16>;
    case KvType::kQ8_0:
      break;  // its plain summaries are f16
  }
  return nullptr;
}

MagnitudeKernel get_magnitude_kernel(SummaryType summary, KvType element) {
  if (summary == SummaryType::kQ8) return magnitudes<Q8>;
  if (summary == SummaryType::kQ4) return magnitudes<Q4>;
  switch (element) {
    case KvType::kF32:
      return magnitudes<F32>;
    case KvType::kF16:
      return magnitudes<F16>;
    case KvType::kBF16:
      return magnitudes<BF16>;
    case KvType::kQ8_0:
      break;  // its plain summaries are f16
  }
  return nullptr;
}

}  // namespace quest::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace quest::cpu {

HWY_EXPORT(get_score_kernel);
HWY_EXPORT(get_magnitude_kernel);

ScoreKernel score_kernel(SummaryType summary, KvType element) {
  return HWY_DYNAMIC_DISPATCH(get_score_kernel)(summary, element);
}

MagnitudeKernel magnitude_kernel(SummaryType summary, KvType element) {
  return HWY_DYNAMIC_DISPATCH(get_magnitude_kernel)(summary, element);
}

// Here because the answer depends on targets.h, like the dispatch.
std::vector<std::int64_t> runnable_targets() { return hwy::SupportedAndGeneratedTargets(); }

}  // namespace quest::cpu
#endif
