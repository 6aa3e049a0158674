// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "attention/cpu/amx.h"

#include <atomic>

#if QUEST_HAVE_AMX
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace quest::cpu {

namespace {

std::atomic<bool> allowed{true};

#if QUEST_HAVE_AMX

/// CPUID: bf16 tile products, and tiles of the size that the kernels take for granted.
bool machine_has_tiles() {
  constexpr unsigned kBf16 = 1U << 22;
  constexpr unsigned kTile = 1U << 24;
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || (d & kBf16) == 0 || (d & kTile) == 0) {
    return false;
  }
  if (__get_cpuid_count(0x1D, 1, &a, &b, &c, &d) == 0) return false;
  const unsigned row_bytes = b & 0xFFFF;
  const unsigned tiles = b >> 16;
  const unsigned rows = c & 0xFFFF;
  return row_bytes == kTileRowBytes && tiles >= 8 && rows == kTileRows;
}

/// The system keeps tile registers when it switches threads.
bool system_saves_tiles() {
  constexpr unsigned kOsXsave = 1U << 27;
  constexpr unsigned kTileStates = 3U << 17;
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c & kOsXsave) == 0) return false;
  unsigned low = 0;
  unsigned high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (low & kTileStates) == kTileStates;
}

/// Linux gives tile data to processes that ask. The leave holds for all threads.
bool system_gives_tiles() {
  constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

bool detect() { return machine_has_tiles() && system_saves_tiles() && system_gives_tiles(); }

#else

bool detect() { return false; }

#endif

}  // namespace

bool amx_usable() {
  static const bool usable = detect();
  return usable && allowed.load(std::memory_order_relaxed);
}

void allow_amx(bool allow) { allowed.store(allow, std::memory_order_relaxed); }

}  // namespace quest::cpu
