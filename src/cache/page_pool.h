// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

namespace quest {

/// Reference counts of the physical pages (SPEC S7.1). The lowest free page goes out first, so that
/// a growing sequence gets consecutive pages and the score stage scans its summaries in order.
/// One thread at a time; reading counts is safe while nobody changes them.
class PagePool {
 public:
  explicit PagePool(std::int32_t num_pages);

  std::int32_t num_pages() const { return static_cast<std::int32_t>(counts_.size()); }
  std::int32_t free_pages() const { return free_pages_; }
  std::int32_t count(std::int32_t page) const { return counts_[page]; }

  /// Takes the lowest free page with one reference. Throws std::logic_error if none is free: ask
  /// `free_pages` first.
  std::int32_t acquire();
  /// One more reference. Throws std::logic_error for a free page.
  void retain(std::int32_t page);
  /// One reference less; the last one frees the page. Throws std::logic_error for a free page, so
  /// that a page cannot be freed twice.
  void release(std::int32_t page);

 private:
  std::vector<std::int32_t> counts_;
  // Two levels of bits: a set bit in free_ is a free page, a set bit in words_ is a word of free_
  // with a bit set. One acquire reads num_pages / 4096 words at worst.
  std::vector<std::uint64_t> free_;
  std::vector<std::uint64_t> words_;
  std::int32_t free_pages_ = 0;
};

}  // namespace quest
