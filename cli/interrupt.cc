// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "interrupt.h"

#include <atomic>
#include <csignal>

namespace quest::cli {
namespace {

std::atomic<bool> flag{false};
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler may touch nothing else");

void on_interrupt(int /*signal*/) { flag.store(true, std::memory_order_relaxed); }

}  // namespace

void catch_interrupts() {
  flag.store(false, std::memory_order_relaxed);
  struct sigaction action = {};
  action.sa_handler = on_interrupt;
  sigemptyset(&action.sa_mask);
  // Back to the default for the second Ctrl-C. No SA_RESTART: a read from the terminal must return.
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  sigaction(SIGINT, &action, nullptr);
}

bool interrupted() { return flag.load(std::memory_order_relaxed); }

}  // namespace quest::cli
