// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <thread>
#include <vector>

#include "quest/team.h"

namespace quest::cli {

/// Threads that stay alive between measurements, the calling one among them.
class Workers {
 public:
  explicit Workers(int threads);
  ~Workers();
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  int size() const { return team_.size(); }
  /// Runs job(team, thread) on all threads and returns the seconds from the moment when all of them
  /// are awake until the last one is done. The job must not throw.
  double run(const std::function<void(Team&, int)>& job);

 private:
  void serve(int thread);

  Team team_;
  const std::function<void(Team&, int)>* job_ = nullptr;
  std::vector<std::thread> others_;
};

}  // namespace quest::cli
