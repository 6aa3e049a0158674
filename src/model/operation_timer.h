// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ggml-backend.h>

#include <chrono>
#include <vector>

#include "quest/profile.h"

namespace quest {

/// Times the operations of graphs while the CPU backend runs them, without touching the graphs:
/// ggml calls the backend's abort callback on the first thread after each operation, and the
/// callback reads the clock. One timer a backend.
class OperationTimer {
 public:
  /// Installs the callback; `backend` must outlive the timer.
  explicit OperationTimer(ggml_backend_t backend);
  ~OperationTimer();
  OperationTimer(const OperationTimer&) = delete;
  OperationTimer& operator=(const OperationTimer&) = delete;

  /// Call right before `graph` runs …
  void start(ggml_cgraph* graph);
  /// … and right after, to add its operations to the profile. Throws Error if ggml ran other
  /// operations than the graph shows (a ggml that fuses what this one does not know).
  void add_to(StepProfile& profile);

 private:
  using Clock = std::chrono::steady_clock;
  static bool note(void* timer);

  ggml_backend_t backend_;
  ggml_cgraph* graph_ = nullptr;
  Clock::time_point start_;
  std::vector<Clock::time_point> ends_;
};

/// Median seconds of an operation that does nothing, in a graph of such operations: what ggml needs
/// to dispatch an operation and let the threads meet after it.
double empty_operation_seconds(ggml_backend_t backend);

}  // namespace quest
