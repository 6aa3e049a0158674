// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "bench/probe.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <numeric>
#include <vector>

#include "bench/spread.h"
#include "bench/workers.h"

namespace quest::cli {
namespace {

constexpr std::int64_t kPage = std::int64_t{256} * 64 * 4;  // bytes, see `buffer_shape`

CacheShape buffer_shape(std::int64_t bytes) {
  return {1, 1, 256, 64, KvType::kF32, std::max<std::int64_t>(1, bytes / kPage)};
}

// Adds up a piece of memory as fast as this core can fetch it. The prefetch matters: without it
// the probe would measure the hardware prefetcher, not the memory.
#if defined(__x86_64__) && !defined(__clang__)
__attribute__((target_clones("avx512f", "avx2", "default")))
#endif
std::uint64_t
read_all(const std::byte* data, std::size_t bytes) {
  constexpr std::size_t kAhead = 4096;
  std::uint64_t sums[32] = {};
  for (std::size_t i = 0; i < bytes; i += 256) {
    for (std::size_t line = 0; line < 256; line += 64) {
      __builtin_prefetch(data + std::min(i + kAhead + line, bytes - 1));
    }
    const auto* words = reinterpret_cast<const std::uint64_t*>(data + i);
    for (std::size_t j = 0; j < 32; ++j) sums[j] += words[j];
  }
  return std::accumulate(sums, sums + 32, std::uint64_t{0});
}

std::atomic<std::uint64_t> sink{0};  // keeps the sums alive

}  // namespace

std::int64_t last_level_cache_bytes() {
#ifdef _SC_LEVEL3_CACHE_SIZE
  for (const int level : {_SC_LEVEL4_CACHE_SIZE, _SC_LEVEL3_CACHE_SIZE, _SC_LEVEL2_CACHE_SIZE}) {
    if (const long bytes = ::sysconf(level); bytes > 0) return bytes;
  }
#endif
  return 0;
}

std::int64_t BandwidthProbe::default_bytes() {
  return std::clamp<std::int64_t>(4 * last_level_cache_bytes(), std::int64_t{512} << 20,
                                  std::int64_t{4} << 30);
}

BandwidthProbe::BandwidthProbe(Workers& workers, std::int64_t buffer_bytes)
    : workers_(workers),
      memory_(buffer_shape(buffer_bytes)),
      bytes_(memory_.shape().num_pages * kPage) {
  std::memset(memory_.layer(0).k, 1, static_cast<std::size_t>(bytes_));
}

double BandwidthProbe::pass() {
  const std::byte* const data = memory_.layer(0).k;
  const double seconds = workers_.run([&](Team& team, int thread) {
    const std::int64_t pieces = bytes_ / 256;
    const std::int64_t first = pieces * thread / team.size() * 256;
    const std::int64_t last = pieces * (thread + 1) / team.size() * 256;
    sink.fetch_add(read_all(data + first, static_cast<std::size_t>(last - first)),
                   std::memory_order_relaxed);
  });
  rates_.push_back(static_cast<double>(bytes_) / seconds);
  return seconds;
}

void BandwidthProbe::passes() {
  constexpr int kPasses = 7;
  for (int i = 0; i < kPasses; ++i) pass();
}

ReadBandwidth BandwidthProbe::result() const {
  const Spread all = spread(rates_);
  return {all.max, all.median, static_cast<std::int64_t>(rates_.size()), bytes_};
}

}  // namespace quest::cli
