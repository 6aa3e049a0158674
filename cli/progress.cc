// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "progress.h"

#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <utility>

#include "interrupt.h"

namespace quest::cli {
namespace {

constexpr double kQuietSeconds = 1.0;
constexpr int kBarWidth = 24;

std::string duration(double seconds) {
  const auto whole = std::llround(seconds);
  char text[32];
  if (whole < 60) {
    std::snprintf(text, sizeof text, "%llds", whole);
  } else {
    std::snprintf(text, sizeof text, "%lldm%02llds", whole / 60, whole % 60);
  }
  return text;
}

}  // namespace

ProgressBar::ProgressBar(std::string label)
    : label_(std::move(label)),
      start_(std::chrono::steady_clock::now()),
      terminal_(isatty(STDERR_FILENO) == 1) {}

ProgressBar::~ProgressBar() {
  if (drawn_) std::fputs("\r\033[K", stderr);
}

void ProgressBar::update(std::int64_t done, std::int64_t total) {
  if (!terminal_ || done <= 0 || total <= 0) return;
  const double elapsed =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  if (elapsed < kQuietSeconds && !drawn_) return;
  const double rate = static_cast<double>(done) / elapsed;
  const int filled = static_cast<int>(done * kBarWidth / total);
  const std::string bar = std::string(static_cast<std::size_t>(filled), '#') +
                          std::string(static_cast<std::size_t>(kBarWidth - filled), '.');
  std::fprintf(stderr, "\r\033[K%s [%s] %lld/%lld tokens, %.0f tokens/s, %s left", label_.c_str(),
               bar.c_str(), static_cast<long long>(done), static_cast<long long>(total), rate,
               duration(static_cast<double>(total - done) / rate).c_str());
  std::fflush(stderr);
  drawn_ = true;
}

Progress ProgressBar::callback(std::int64_t& done) {
  return [this, &done](std::int64_t finished, std::int64_t total) {
    done = finished;
    update(finished, total);
    return !interrupted();
  };
}

}  // namespace quest::cli
