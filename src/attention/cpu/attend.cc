// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "attention/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "attention/cpu/attend.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "attention/cpu/attend-inl.h"
#include "attention/cpu/kernel_getters.h"
#include "attention/cpu/probe-inl.h"

HWY_BEFORE_NAMESPACE();
namespace quest::cpu::HWY_NAMESPACE {

AttendKernel get_attend_kernel(KvType type) {
  switch (type) {
    case KvType::kF32:
      return attend<F32>;
    case KvType::kF16:
      return attend<F16>;
    case KvType::kBF16:
      return attend<BF16>;
    case KvType::kQ8_0:
      return attend<Q8>;
  }
  return nullptr;
}

ProbeKernel get_probe_kernel(KvType type) {
  switch (type) {
    case KvType::kF32:
      return probe<F32>;
    case KvType::kF16:
      return probe<F16>;
    case KvType::kBF16:
      return probe<BF16>;
    case KvType::kQ8_0:
      return probe<Q8>;
  }
  return nullptr;
}

}  // namespace quest::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace quest::cpu {

HWY_EXPORT(get_attend_kernel);
HWY_EXPORT(get_probe_kernel);

AttendKernel attend_kernel(KvType type) { return HWY_DYNAMIC_DISPATCH(get_attend_kernel)(type); }
ProbeKernel probe_kernel(KvType type) { return HWY_DYNAMIC_DISPATCH(get_probe_kernel)(type); }

}  // namespace quest::cpu
#endif
