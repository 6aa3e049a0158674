// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "quest/team.h"

#include <thread>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace quest {

namespace {

/// Some tens of microseconds: longer than the uneven ends of two equal shares of work.
constexpr int kSpins = 2000;

/// Spinning helps nobody when a member may be waiting for this very core.
int spins_for(int team_size) {
  static const auto cores = static_cast<int>(std::thread::hardware_concurrency());
  return team_size <= cores ? kSpins : 0;
}

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
    phase_.notify_all();  // no system call unless somebody sleeps
    return;
  }
  // The wait is shorter than a system call when every thread has a core. When threads outnumber
  // cores, sleep: a yield keeps the waiting threads runnable, and they then take turns with the one
  // that all wait for.
  const int spins = spins_for(size_);
  for (int spin = 0; spin < spins; ++spin) {
    if (phase_.load(std::memory_order_acquire) != phase) return;
    relax();
  }
  phase_.wait(phase, std::memory_order_acquire);
}

}  // namespace quest
