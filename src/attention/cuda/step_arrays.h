// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "attention/cuda/device.h"
#include "quest/batch.h"
#include "quest/paged_kv.h"

namespace quest::cuda {

/// A step's batch as kernels read it: one piece of device memory that is sent whole, and the page
/// tables, of which a step sends what changed. The addresses depend on the number of rows and on
/// capacities that grow by doubling, not on lengths or page tables, so that a captured step can be
/// replayed with new contents.
class StepArrays {
 public:
  explicit StepArrays(Device& device) : memory_(device), tables_(device) {}

  /// Fills the arrays from a valid batch and makes room for them. `group`: query heads of one KV
  /// head.
  void plan(const Batch& batch, const CacheShape& shape, std::int32_t group);
  /// Sends them to the device; the batch is that of `plan`.
  void send(const Batch& batch, const CacheShape& shape, Device& device);
  /// Points the arguments at the arrays.
  void describe(LayerArgs& args) const;

  const std::vector<Row>& rows() const { return rows_; }
  std::int32_t num_rows() const { return static_cast<std::int32_t>(rows_.size()); }
  std::int32_t num_tiles() const { return static_cast<std::int32_t>(tiles_.size()); }
  /// Rows that the prefill kernel does not serve, or not in every layer.
  std::int32_t list_rows() const { return list_rows_; }
  std::int32_t sparse_rows() const { return sparse_rows_; }
  std::int32_t max_sparse_pages() const { return max_sparse_pages_; }
  /// Pages of one row that the launches allow for: a power of two, no less than any row's.
  std::int32_t page_capacity() const { return page_capacity_; }

 private:
  /// Where an array begins in the device memory.
  struct Offsets {
    std::size_t counts = 0;
    std::size_t rows = 0;
    std::size_t touched = 0;
    std::size_t tiles = 0;
    std::size_t part_indptr = 0;
    std::size_t patches = 0;
    std::size_t end = 0;
  };

  void add_request(const Batch& batch, const CacheShape& shape, std::int32_t request,
                   std::int32_t tile_rows);
  void place_tables(const Batch& batch);
  void find_patches(const Batch& batch);
  /// A row adds a page at most, and another takes the place of a shared tail page.
  std::size_t most_patches() const { return 2 * rows_.size(); }
  void send_tables(const CacheShape& shape, Device& device) const;
  void place();
  template <class T>
  void pack(std::size_t offset, const T* from, std::size_t count);

  std::vector<Row> rows_;
  std::vector<TouchedPage> touched_;
  std::vector<Tile> tiles_;
  std::vector<std::int32_t> part_indptr_;
  std::int32_t list_rows_ = 0;
  std::int32_t sparse_rows_ = 0;
  std::int32_t max_sparse_pages_ = 0;
  std::int32_t page_capacity_ = 1;
  std::vector<std::int32_t> table_begin_;  ///< [requests]
  std::size_t table_end_ = 0;
  std::vector<std::int32_t> sent_;  ///< what the page tables on the device hold; -1: anything
  bool tables_arrived_ = true;
  std::vector<TablePatch> patches_;
  Offsets at_;
  std::vector<std::byte> packed_;
  DeviceArray<std::byte> memory_;
  DeviceArray<std::int32_t> tables_;
};

}  // namespace quest::cuda
