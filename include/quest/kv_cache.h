// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "quest/paged_kv.h"

namespace quest {

class PageListener;

/// Names one sequence in a `KvCache`. Ids are never reused within one cache.
using SequenceId = std::int64_t;

/// The paged KV cache (SPEC S2, S7.1–S7.4): a pool of reference-counted physical pages, a page
/// table for each sequence, and for every page, layer and KV head the minimum and maximum of its
/// keys, kept current on the append path.
///
/// A page that holds `page_size` tokens is sealed: it never changes again and may be shared by many
/// sequences. A partly filled tail page that two sequences share is copied, with its summary, the
/// moment one of them grows (copy on write).
///
/// The life of a token: `reserve` makes room once for all layers, then for each layer and KV head
/// `append` stores its key and value and `summarise` folds the key into the page's summary.
/// `reserve`, `fork`, `truncate` and `release` belong to one thread; `append` and `summarise` may
/// run at the same time for different (layer, KV head) pairs or different sequences.
class KvCache {
 public:
  /// Allocates the pool (zero-filled by the system, huge pages where the system grants them).
  /// Throws InvalidArgument for a shape outside the documented values or sizes that overflow.
  explicit KvCache(const CacheShape& shape);
  ~KvCache();
  KvCache(const KvCache&) = delete;
  KvCache& operator=(const KvCache&) = delete;

  /// Bytes that a cache of this shape allocates: K, V and summaries, exactly.
  static std::int64_t planned_bytes(const CacheShape& shape);

  const CacheShape& shape() const;
  /// The layer's storage; valid as long as the cache.
  PagedKv layer(std::int32_t layer) const;

  /// A new empty sequence.
  SequenceId create();
  /// A new sequence with the same tokens: all pages shared, nothing copied (SPEC S7.2).
  SequenceId fork(SequenceId parent);
  /// A new sequence with the first `length` tokens of `parent`: whole pages shared (SPEC S7.1);
  /// a prefix that ends inside a page costs one page copy with its summary rebuilt.
  /// Throws OutOfPages (nothing changed), InvalidArgument if `length` exceeds the parent's.
  SequenceId fork_prefix(SequenceId parent, std::int64_t length);
  /// Forgets all tokens from `length` on. Whole pages are dropped; a tail page cut inside has its
  /// summary rebuilt from the remaining keys (SPEC S7.3), on a copy if others still read the page.
  /// Throws OutOfPages (nothing changed) if that copy finds no page.
  void truncate(SequenceId sequence, std::int64_t length);
  /// Drops the sequence and its references.
  void release(SequenceId sequence);

  /// Makes room for `count` more tokens: allocates pages, copies a shared tail page. The length
  /// grows at once; every layer must then be appended to and summarised.
  /// Throws OutOfPages naming pages needed and free; the cache is then unchanged.
  void reserve(SequenceId sequence, std::int64_t count);

  /// Stores keys and values of tokens [position, position + count) of one layer and KV head.
  /// k, v: [count, head_dim] float, rows `k_stride` / `v_stride` floats apart. The tokens must have
  /// been reserved. Values are rounded to the cache's type (nearest even).
  void append(std::int32_t layer, std::int32_t kv_head, SequenceId sequence, std::int64_t position,
              std::int64_t count, const float* k, std::int64_t k_stride, const float* v,
              std::int64_t v_stride);
  /// Folds the stored keys of tokens [position, position + count) into their pages' summaries.
  /// The first token of a page starts a fresh summary, so a recycled page needs no clearing
  /// (SPEC S2.2, S2.4). Tokens must be summarised in order, each once. Minus zero counts as less
  /// than plus zero; a NaN key makes the channel's minimum and maximum NaN.
  void summarise(std::int32_t layer, std::int32_t kv_head, SequenceId sequence,
                 std::int64_t position, std::int64_t count);

  bool contains(SequenceId sequence) const;
  std::int64_t length(SequenceId sequence) const;
  /// The sequence's page table: physical page of each logical page, ceil(length / page_size)
  /// entries, valid until the sequence changes.
  std::span<const std::int32_t> pages(SequenceId sequence) const;

  /// Whom to tell of changed pages from now on; null for nobody. Not owned. Throws InvalidArgument
  /// if there is a listener already.
  void listen(PageListener* listener);

  std::int64_t free_pages() const;
  std::int32_t reference_count(std::int32_t page) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace quest
