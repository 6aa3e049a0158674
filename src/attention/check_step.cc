// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "attention/check_step.h"

#include <string>

#include "quest/error.h"

namespace quest {

namespace {

[[noreturn]] void refuse(std::int32_t request, const std::string& fault) {
  throw InvalidArgument("batch: request " + std::to_string(request) + " " + fault);
}

/// The rows' own tokens are about to be written: they must be reserved, in pages that the cache
/// gave to this sequence alone.
void check_writable(const KvCache& cache, const Batch& batch, std::int32_t r,
                    std::int64_t first_position) {
  const std::int64_t sequence = batch.sequences[r];
  if (!cache.contains(sequence)) refuse(r, "names no sequence: " + std::to_string(sequence));
  const std::int32_t page_size = cache.shape().page_size;
  const std::int64_t length = batch.kv_len(r, page_size);
  if (cache.length(sequence) < length) {
    refuse(r, "has " + std::to_string(length) + " tokens but only " +
                  std::to_string(cache.length(sequence)) + " are reserved");
  }
  const auto owned = cache.pages(sequence);
  for (std::int64_t p = first_position / page_size; p < batch.num_pages(r); ++p) {
    const std::int32_t page = batch.pages(r)[p];
    if (page != owned[static_cast<std::size_t>(p)]) {
      refuse(r, "writes page " + std::to_string(page) + ", which sequence " +
                    std::to_string(sequence) + " does not have at index " + std::to_string(p));
    }
    if (cache.reference_count(page) > 1) {
      refuse(r, "writes page " + std::to_string(page) + ", which other sequences share");
    }
  }
}

}  // namespace

void check_step(const Batch& batch, const KvCache& cache, std::int32_t num_q_heads) {
  const CacheShape& shape = cache.shape();
  validate(batch, shape);
  if (num_q_heads <= 0 || num_q_heads % shape.num_kv_heads != 0) {
    throw InvalidArgument("num_q_heads " + std::to_string(num_q_heads) +
                          " is not a multiple of the cache's " +
                          std::to_string(shape.num_kv_heads) + " KV heads");
  }
  for (std::int32_t r = 0; r < batch.num_requests(); ++r) {
    const std::int32_t rows = batch.num_rows(r);
    if (rows == 0) continue;
    check_writable(cache, batch, r, batch.kv_len(r, shape.page_size) - rows);
  }
}

}  // namespace quest
