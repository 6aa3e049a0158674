// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "attention/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "attention/cpu/values.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "attention/cpu/kernel_getters.h"
#include "attention/cpu/values-inl.h"

HWY_BEFORE_NAMESPACE();
namespace quest::cpu::HWY_NAMESPACE {

LogitsKernel get_logits_kernel(KvType type) {
  switch (type) {
    case KvType::kF32:
      return logits<F32>;
    case KvType::kF16:
      return logits<F16>;
    case KvType::kBF16:
      return logits<BF16>;
    case KvType::kQ8_0:
      return logits<Q8>;
  }
  return nullptr;
}

ValuesKernel get_values_kernel(KvType type) {
  switch (type) {
    case KvType::kF32:
      return values<F32>;
    case KvType::kF16:
      return values<F16>;
    case KvType::kBF16:
      return values<BF16>;
    case KvType::kQ8_0:
      return values<Q8>;
  }
  return nullptr;
}

}  // namespace quest::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace quest::cpu {

HWY_EXPORT(get_logits_kernel);
HWY_EXPORT(get_values_kernel);

LogitsKernel logits_kernel(KvType type) { return HWY_DYNAMIC_DISPATCH(get_logits_kernel)(type); }
ValuesKernel values_kernel(KvType type) { return HWY_DYNAMIC_DISPATCH(get_values_kernel)(type); }

}  // namespace quest::cpu
#endif
