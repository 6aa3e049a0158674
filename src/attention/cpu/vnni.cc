// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "attention/cpu/vnni.h"

#include <atomic>

namespace quest::cpu {

namespace {

bool processor_has_vnni() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx512vnni") != 0;
#else
  return false;
#endif
}

std::atomic<bool> vnni_allowed{true};

}  // namespace

bool uses_vnni() {
  static const bool has_vnni = processor_has_vnni();
  return has_vnni && vnni_allowed.load(std::memory_order_relaxed);
}

void allow_vnni(bool allowed) { vnni_allowed.store(allowed, std::memory_order_relaxed); }

}  // namespace quest::cpu
