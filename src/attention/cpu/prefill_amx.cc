// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "attention/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "attention/cpu/prefill_amx.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "attention/cpu/amx.h"
#include "attention/cpu/kernel_getters.h"
#include "attention/cpu/prefill_amx-inl.h"

HWY_BEFORE_NAMESPACE();
namespace quest::cpu::HWY_NAMESPACE {

#if QUEST_AMX_TARGET

template <class Format, KvType kType>
void prefill_amx(const PrefillArgs& args) {
  if (!prefill_by_tiles<Format>(args)) prefill_kernel(kType)(args);
}

PrefillKernel get_prefill_amx_kernel(KvType type) {
  switch (type) {
    case KvType::kF32:
      return nullptr;  // whoever stores 32 bits wants them: 16 could turn a close selection
    case KvType::kF16:
      return prefill_amx<F16, KvType::kF16>;
    case KvType::kBF16:
      return prefill_amx<BF16, KvType::kBF16>;
    case KvType::kQ8_0:
      return nullptr;  // its pages are widened by the float32 kernel
  }
  return nullptr;
}

#else

PrefillKernel get_prefill_amx_kernel(KvType /*type*/) { return nullptr; }

#endif

}  // namespace quest::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace quest::cpu {

HWY_EXPORT(get_prefill_amx_kernel);

PrefillKernel prefill_amx_kernel(KvType type) {
  if (!amx_usable()) return nullptr;
  return HWY_DYNAMIC_DISPATCH(get_prefill_amx_kernel)(type);
}

}  // namespace quest::cpu
#endif
