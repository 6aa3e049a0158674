// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "quest/engine.h"

namespace quest::cli {

/// A progress bar on stderr: only on a terminal, only for work longer than about a second, gone
/// when the work is done.
class ProgressBar {
 public:
  explicit ProgressBar(std::string label);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void update(std::int64_t done, std::int64_t total);

  /// The bar as the engine's callback, which also stops the work after Ctrl-C. The last count of
  /// finished tokens goes to `done`. Both must outlive the callback.
  Progress callback(std::int64_t& done);

 private:
  const std::string label_;
  const std::chrono::steady_clock::time_point start_;
  const bool terminal_;
  bool drawn_ = false;
};

}  // namespace quest::cli
