// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "quest/certificate.h"
#include "selection/bound_mass.h"
#include "selection/forced_pages.h"

namespace quest {

/// What a search starts from: one row and KV head.
struct SearchStart {
  /// Bounds q·k ≤ U of each query head, not scaled, as computed; [group, forced.num_pages], rows
  /// `stride` floats apart; no NaN. They must stay until the search ends.
  const float* bounds = nullptr;
  std::int64_t stride = 0;
  const double* margins = nullptr;  ///< [group], see rounding_margin.h
  ForcedPages forced;               ///< from `page_budget`
  std::int64_t page_budget = 1;     ///< pages of a query head in the first batch, < num_pages
  std::int32_t page_size = 0;
  float scale = 1;  ///< factor on q·k
};

/// Branch and bound over the pages of one (row, KV head), for all its query heads (SPEC S4.6,
/// S4.7). The search says which pages to read next; the caller reads their keys and reports the
/// logits of every head; and so on until every head is certified or nothing is left to read.
///
/// What holds at the end for the exact numbers q·k and U, not only for the computed ones:
/// - kTopR: every key with q·k at or above the R-th greatest of all keys is in the list. The
///   computed R-th best minus the margin is at most the exact one, and the greatest computed bound
///   of an unread page plus the margin is at least all of its keys.
/// - kMass: the attention mass outside the list is at most `epsilon()`, which is at most what was
///   asked for.
/// A head whose margin is infinite cannot be certified: the list is then every page, unread.
///
/// One thread. Calls within the reserved size allocate nothing.
class CertificateSearch {
 public:
  /// Room for rows of up to `num_pages` pages.
  void reserve(const Certificate& certificate, std::int32_t group, std::int32_t num_pages,
               std::int32_t page_size);

  /// Starts anew, with the certificate and the group of `reserve`.
  void start(const SearchStart& start);
  /// Pages whose keys must be reported before the next call, distinct; the tail page, which alone
  /// may be partly filled, is the last of its batch. Empty: the search has ended.
  std::span<const std::int32_t> next_batch();

  /// Reports the q·k, not scaled, of keys of the batch, for kTopR.
  void add_logits(std::int32_t head, std::span<const float> logits);
  /// Reports keys of the batch for kMass; see BoundMass::add_read.
  void add_mass(std::int32_t head, float greatest, float sum);

  /// Writes the list, ascending, and returns its length; pages: num_pages entries.
  std::int32_t list(std::int32_t* pages) const;
  /// Pages that were handed out in batches.
  std::int32_t pages_probed() const { return probed_; }
  /// For kMass the bound that the worst head reached; 0 when every page is in the list.
  double epsilon() const { return epsilon_; }

 private:
  bool everything_read() const { return pages_read_ == from_.forced.num_pages; }
  std::span<std::int32_t> heap(std::int32_t head);
  std::span<double> best(std::int32_t head);
  float bound(std::int32_t head, std::int32_t page) const {
    return from_.bounds[head * from_.stride + page];
  }
  bool is_read(std::int32_t page) const;
  void read(std::int32_t page);
  void read_everything();
  std::int32_t pop(std::int32_t head);
  void first_batch();
  void skip_read_pages(std::int32_t head);
  double least_top(std::int32_t head);
  bool reaches_top(std::int32_t head);
  bool check(std::int32_t head);
  void grow(std::int32_t head, std::int32_t pages);

  Certificate certificate_;
  std::int32_t group_ = 0;
  std::int32_t capacity_ = 0;      ///< pages reserved
  std::int64_t top_capacity_ = 0;  ///< logits kept for a head: r, or all keys if they are fewer
  SearchStart from_;

  std::vector<std::uint64_t> read_;      ///< [ceil(pages / 64)] bit set: in the list
  std::vector<std::int32_t> batch_;      ///< pages of the current batch
  std::vector<std::int32_t> heaps_;      ///< [group, pages] unread free pages, best bound on top
  std::vector<std::int32_t> heap_size_;  ///< [group]
  std::vector<std::uint8_t> certified_;  ///< [group] as last checked
  std::vector<double> best_;             ///< [group, top_capacity] best logits, the least on top
  std::vector<std::int64_t> best_size_;  ///< [group]
  std::vector<BoundMass> masses_;        ///< [group]
  std::vector<double> weights_;          ///< [group, pages] of `masses_`
  std::int32_t pages_read_ = 0;
  std::int32_t probed_ = 0;
  double epsilon_ = 0;
  bool started_ = false;  ///< the first batch has been handed out
};

}  // namespace quest
