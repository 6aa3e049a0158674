// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>

namespace quest {

/// A barrier for threads that somebody else owns (ggml's). All `size` members call `wait`; none
/// returns before the last has called it, and everything written before is visible after.
class Team {
 public:
  explicit Team(int size) : size_(size) {}
  int size() const { return size_; }
  void wait();

 private:
  const int size_;
  alignas(64) std::atomic<int> arrived_{0};
  alignas(64) std::atomic<unsigned> phase_{0};
};

}  // namespace quest
