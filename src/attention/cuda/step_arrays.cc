// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "attention/cuda/step_arrays.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

namespace quest::cuda {

void StepArrays::plan(const Batch& batch, const CacheShape& shape, std::int32_t group) {
  rows_.clear();
  touched_.clear();
  tiles_.clear();
  part_indptr_.assign(1, 0);
  list_rows_ = sparse_rows_ = max_sparse_pages_ = 0;
  const std::int32_t tile_rows = std::max(1, kTileHeads / group);
  place_tables(batch);
  for (std::int32_t r = 0; r < batch.num_requests(); ++r) add_request(batch, shape, r, tile_rows);

  place();
  packed_.resize(at_.end);
  memory_.grow(static_cast<std::int64_t>(at_.end));
}

void StepArrays::send(const Batch& batch, const CacheShape& shape, Device& device) {
  // After an error nobody knows which tables arrived.
  if (!std::exchange(tables_arrived_, false)) std::fill(sent_.begin(), sent_.end(), -1);
  find_patches(batch);
  const StepCounts counts{num_rows(), static_cast<std::int32_t>(touched_.size()), num_tiles()};
  pack(at_.counts, &counts, 1);
  pack(at_.rows, rows_.data(), rows_.size());
  pack(at_.touched, touched_.data(), touched_.size());
  pack(at_.tiles, tiles_.data(), tiles_.size());
  pack(at_.part_indptr, part_indptr_.data(), part_indptr_.size());
  const std::size_t patches = patches_.size() <= most_patches() ? patches_.size() : 0;
  pack(at_.patches, patches_.data(), patches);
  const std::size_t used = at_.patches + patches * sizeof(TablePatch);
  device.upload(memory_.data(), packed_.data(), static_cast<std::int64_t>(used));
  send_tables(shape, device);
  tables_arrived_ = true;
}

/// Each request's table has room for as many pages as a power of two, so that the tables after it
/// stay where they are while it grows.
void StepArrays::place_tables(const Batch& batch) {
  table_begin_.clear();
  std::size_t end = 0;
  for (std::int32_t r = 0; r < batch.num_requests(); ++r) {
    table_begin_.push_back(static_cast<std::int32_t>(end));
    const auto pages = static_cast<std::size_t>(batch.num_pages(r));
    if (pages > 0) end += std::bit_ceil(pages);
  }
  table_end_ = end;
  const std::size_t capacity = std::bit_ceil(std::max<std::size_t>(end, 1));
  if (capacity <= sent_.size()) return;
  sent_.clear();  // should there be too little memory, the next step tries again
  tables_.grow(static_cast<std::int64_t>(capacity));
  sent_.assign(capacity, -1);
}

void StepArrays::find_patches(const Batch& batch) {
  patches_.clear();
  for (std::int32_t r = 0; r < batch.num_requests(); ++r) {
    const std::int32_t* const pages = batch.pages(r);
    const std::int32_t begin = table_begin_[static_cast<std::size_t>(r)];
    for (std::int32_t i = 0; i < batch.num_pages(r); ++i) {
      const std::int32_t place = begin + i;
      std::int32_t& sent = sent_[static_cast<std::size_t>(place)];
      if (sent != pages[i]) patches_.push_back({place, pages[i]});
      sent = pages[i];
    }
  }
}

/// Few changes are patched in by a kernel; many, of another batch, are sent with all the rest.
void StepArrays::send_tables(const CacheShape& shape, Device& device) const {
  if (patches_.empty()) return;
  if (patches_.size() > most_patches()) {
    device.upload(tables_.data(), sent_.data(),
                  static_cast<std::int64_t>(table_end_ * sizeof(std::int32_t)));
    return;
  }
  LayerArgs args;
  args.shape.head_dim = shape.head_dim;
  args.patched = tables_.data();
  args.patches = reinterpret_cast<const TablePatch*>(memory_.data() + at_.patches);
  args.num_patches = static_cast<std::int32_t>(patches_.size());
  device.launch(Kernel::kPatchTables, args, (args.num_patches + kPatchThreads - 1) / kPatchThreads);
}

void StepArrays::add_request(const Batch& batch, const CacheShape& shape, std::int32_t request,
                             std::int32_t tile_rows) {
  const std::int32_t count = batch.num_rows(request);
  if (count == 0) return;
  const std::int32_t page_size = shape.page_size;
  const std::int64_t first_position = batch.kv_len(request, page_size) - count;
  const std::int32_t first_row = num_rows();
  const bool sparse = batch.sparse[static_cast<std::size_t>(request)] != 0;
  for (std::int32_t i = 0; i < count; ++i) {
    const std::int64_t position = first_position + i;
    Row row;
    row.table = table_begin_[static_cast<std::size_t>(request)];
    row.num_pages = static_cast<std::int32_t>(position / page_size + 1);
    row.tail_tokens = static_cast<std::int32_t>(position % page_size + 1);
    row.sparse = sparse ? 1 : 0;
    row.in_tile = count > 1 ? 1 : 0;
    rows_.push_back(row);
    const std::int32_t parts = sparse ? (row.num_pages + kScorePart - 1) / kScorePart : 0;
    part_indptr_.push_back(part_indptr_.back() + parts);
    // The page's last row of this step knows how full it gets.
    if (row.tail_tokens == page_size || i == count - 1) {
      const std::int32_t added = std::min(row.tail_tokens, i + 1);
      touched_.push_back(
          {batch.pages(request)[row.num_pages - 1], row.tail_tokens, added, num_rows() - added});
    }
  }
  const std::int32_t pages = rows_.back().num_pages;
  page_capacity_ = std::max(
      page_capacity_, static_cast<std::int32_t>(std::bit_ceil(static_cast<std::uint32_t>(pages))));
  if (sparse) {
    sparse_rows_ += count;
    max_sparse_pages_ = std::max(max_sparse_pages_, pages);
  }
  if (sparse || count == 1) list_rows_ += count;
  if (count == 1) return;
  for (std::int32_t i = 0; i < count; i += tile_rows) {
    tiles_.push_back({first_row + i, std::min(tile_rows, count - i)});
  }
}

/// A step of as many rows and no greater capacities gets the same places.
void StepArrays::place() {
  constexpr std::size_t kAlignment = 64;
  std::size_t end = 0;
  const auto take = [&](std::size_t bytes) {
    const std::size_t begin = end;
    end = (begin + bytes + kAlignment - 1) / kAlignment * kAlignment;
    return begin;
  };
  const std::size_t rows = rows_.size();
  at_.counts = take(sizeof(StepCounts));
  at_.rows = take(rows * sizeof(Row));
  at_.touched = take(rows * sizeof(TouchedPage));
  at_.tiles = take(rows * sizeof(Tile));
  at_.part_indptr = take((rows + 1) * sizeof(std::int32_t));
  at_.patches = take(most_patches() * sizeof(TablePatch));
  at_.end = end;
}

template <class T>
void StepArrays::pack(std::size_t offset, const T* from, std::size_t count) {
  if (count > 0) std::memcpy(packed_.data() + offset, from, count * sizeof(T));
}

void StepArrays::describe(LayerArgs& args) const {
  const std::byte* const base = memory_.data();
  args.counts = reinterpret_cast<const StepCounts*>(base + at_.counts);
  args.rows = reinterpret_cast<const Row*>(base + at_.rows);
  args.touched = reinterpret_cast<const TouchedPage*>(base + at_.touched);
  args.tiles = reinterpret_cast<const Tile*>(base + at_.tiles);
  args.part_indptr = reinterpret_cast<const std::int32_t*>(base + at_.part_indptr);
  args.table = tables_.data();
}

}  // namespace quest::cuda
