// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "quest/kv_cache.h"

namespace quest::cli {

class Workers;

/// Bytes of the last-level cache as the system tells them, 0 if it does not.
std::int64_t last_level_cache_bytes();

/// How fast all threads together read memory that no cache holds.
struct ReadBandwidth {
  double best = 0;    ///< bytes a second, of the fastest pass: what the machine can do
  double median = 0;  ///< bytes a second, of all passes: what its neighbours left of it
  std::int64_t passes = 0;
  std::int64_t buffer_bytes = 0;
};

/// The machine's read bandwidth, the yardstick of every kernel. It reads a buffer far above the
/// caches from memory of the KV cache's own kind (huge pages where the system grants them), with
/// prefetches, so that it meets the memory's limit and not the hardware prefetcher's.
class BandwidthProbe {
 public:
  /// What `buffer_bytes` should be here: four times the last-level cache, 512 MiB at least.
  static std::int64_t default_bytes();

  /// `workers` must outlive the probe. Throws Error if there is no memory for the buffer.
  BandwidthProbe(Workers& workers, std::int64_t buffer_bytes);

  /// Reads the whole buffer once; returns the seconds. Everything else leaves the caches by it.
  double pass();
  /// Some passes, before anything else is measured and in between.
  void passes();
  /// Over all passes so far. A shared machine's bandwidth changes from minute to minute, so a
  /// benchmark lets passes stand between its measurements.
  ReadBandwidth result() const;

 private:
  Workers& workers_;
  KvCache memory_;
  std::int64_t bytes_;
  std::vector<double> rates_;  ///< bytes a second
};

}  // namespace quest::cli
