// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>

namespace quest {

/// How often lists of each length occurred, in bounded memory: lengths below 32 apart, longer ones
/// in 16 steps between powers of two.
class PageHistogram {
 public:
  /// pages ≥ 0.
  void add(std::int64_t pages) { ++counts_[index(pages)]; }
  PageHistogram& operator+=(const PageHistogram& other);
  /// Least length that at least this share (0 … 1) of the lists do not pass; up to 1/16 too high
  /// for lengths of 32 and more, never too low. 0 without lists.
  std::int64_t quantile(double share) const;

  static constexpr std::size_t kBuckets = 448;  ///< enough for 31-bit lengths
  const std::array<std::int64_t, kBuckets>& counts() const { return counts_; }
  void set_count(std::size_t bucket, std::int64_t count) { counts_[bucket] = count; }

 private:
  static std::size_t index(std::int64_t pages);
  std::array<std::int64_t, kBuckets> counts_{};
};

/// What certificates cost and reached, over (row, layer, KV head) lists. Rows that read everything
/// without a search (dense layers, short contexts) need no certificate and are not among them.
struct CertificateCounters {
  std::int64_t lists = 0;       ///< searches
  std::int64_t fallbacks = 0;   ///< searches that ended with every page read
  std::int64_t pages = 0;       ///< read by these lists
  std::int64_t pages_seen = 0;  ///< that full attention would have read for them
  std::int64_t pages_max = 0;   ///< of one list
  PageHistogram histogram;      ///< of the lists' pages
  /// Of kMass: proven bound on the mass left out, the worst query head of each list; 0 for
  /// fallbacks.
  double epsilon_sum = 0;
  double epsilon_max = 0;

  CertificateCounters& operator+=(const CertificateCounters& other);
  void add(std::int64_t list_pages, std::int64_t row_pages, double epsilon);
  /// Pages that 95 % of the lists do not pass; see PageHistogram::quantile.
  std::int64_t pages_p95() const;
};

}  // namespace quest
