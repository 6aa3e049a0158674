// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "quest/team.h"

#include <thread>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace quest {

namespace {

void relax() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

void Team::wait() {
  const unsigned phase = phase_.load(std::memory_order_relaxed);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == size_) {
    // Reset before release: the next phase cannot start before phase_ changes.
    arrived_.store(0, std::memory_order_relaxed);
    phase_.store(phase + 1, std::memory_order_release);
    return;
  }
  // The wait is shorter than a system call when every thread has a core; when threads outnumber
  // cores, give the core away.
  for (int spins = 0; phase_.load(std::memory_order_acquire) == phase; ++spins) {
    if (spins < 2000) {
      relax();
    } else {
      std::this_thread::yield();
    }
  }
}

}  // namespace quest
