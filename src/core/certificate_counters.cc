// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "quest/certificate_counters.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

namespace quest {

namespace {

constexpr int kStepBits = 4;  // 16 steps between powers of two

}  // namespace

std::size_t PageHistogram::index(std::int64_t pages) {
  const auto length = static_cast<std::uint64_t>(pages);
  const int shift = std::max(static_cast<int>(std::bit_width(length)) - kStepBits - 1, 0);
  const std::size_t bucket = (static_cast<std::size_t>(shift) << kStepBits) + (length >> shift);
  return std::min(bucket, kBuckets - 1);
}

PageHistogram& PageHistogram::operator+=(const PageHistogram& other) {
  for (std::size_t i = 0; i < kBuckets; ++i) counts_[i] += other.counts_[i];
  return *this;
}

std::int64_t PageHistogram::quantile(double share) const {
  const std::int64_t total = std::accumulate(counts_.begin(), counts_.end(), std::int64_t{0});
  if (total == 0) return 0;
  const auto needed = static_cast<std::int64_t>(std::ceil(share * static_cast<double>(total)));
  std::int64_t passed = 0;
  std::size_t bucket = 0;
  while (bucket + 1 < kBuckets) {
    passed += counts_[bucket];
    if (passed >= needed) break;
    ++bucket;
  }
  if (bucket < (std::size_t{2} << kStepBits)) return static_cast<std::int64_t>(bucket);
  const std::size_t shift = (bucket >> kStepBits) - 1;
  const std::size_t first = bucket - (shift << kStepBits);
  return static_cast<std::int64_t>(((first + 1) << shift) - 1);
}

CertificateCounters& CertificateCounters::operator+=(const CertificateCounters& other) {
  lists += other.lists;
  fallbacks += other.fallbacks;
  pages += other.pages;
  pages_seen += other.pages_seen;
  pages_max = std::max(pages_max, other.pages_max);
  histogram += other.histogram;
  epsilon_sum += other.epsilon_sum;
  epsilon_max = std::max(epsilon_max, other.epsilon_max);
  return *this;
}

void CertificateCounters::add(std::int64_t list_pages, std::int64_t row_pages, double epsilon) {
  ++lists;
  if (list_pages == row_pages) ++fallbacks;
  pages += list_pages;
  pages_seen += row_pages;
  pages_max = std::max(pages_max, list_pages);
  histogram.add(list_pages);
  epsilon_sum += epsilon;
  epsilon_max = std::max(epsilon_max, epsilon);
}

std::int64_t CertificateCounters::pages_p95() const {
  return std::min(histogram.quantile(0.95), pages_max);
}

}  // namespace quest
