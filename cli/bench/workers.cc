// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "bench/workers.h"

#include <chrono>

namespace quest::cli {

Workers::Workers(int threads) : team_(threads) {
  for (int t = 1; t < threads; ++t) others_.emplace_back([this, t] { serve(t); });
}

Workers::~Workers() {
  job_ = nullptr;
  team_.wait();
  for (std::thread& other : others_) other.join();
}

double Workers::run(const std::function<void(Team&, int)>& job) {
  job_ = &job;
  team_.wait();
  const auto start = std::chrono::steady_clock::now();
  job(team_, 0);
  team_.wait();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void Workers::serve(int thread) {
  while (true) {
    team_.wait();
    if (job_ == nullptr) return;
    (*job_)(team_, thread);
    team_.wait();
  }
}

}  // namespace quest::cli
