// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "attention/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "attention/cpu/prefill.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "attention/cpu/kernel_getters.h"
#include "attention/cpu/prefill-inl.h"

HWY_BEFORE_NAMESPACE();
namespace quest::cpu::HWY_NAMESPACE {

PrefillKernel get_prefill_kernel(KvType type) {
  switch (type) {
    case KvType::kF32:
      return prefill<F32>;
    case KvType::kF16:
      return prefill<F16>;
    case KvType::kBF16:
      return prefill<BF16>;
    case KvType::kQ8_0:
      return prefill<Q8>;
  }
  return nullptr;
}

}  // namespace quest::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace quest::cpu {

HWY_EXPORT(get_prefill_kernel);

PrefillKernel prefill_kernel(KvType type) { return HWY_DYNAMIC_DISPATCH(get_prefill_kernel)(type); }

}  // namespace quest::cpu
#endif
