// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "attention/cuda/device_pool.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>

#include "quest/error.h"

namespace quest::cuda {

namespace {

[[noreturn]] void refuse(const std::string& fault) { throw InvalidArgument("CUDA: " + fault); }

PoolShape checked_shape(const CacheShape& shape) {
  if (shape.type != KvType::kF16 && shape.type != KvType::kBF16) {
    refuse("keys and values of type " + std::string(name_of(shape.type)) +
           " are not available on GPUs; use f16 or bf16");
  }
  if (shape.head_dim != 64 && shape.head_dim != 128 && shape.head_dim != 256) {
    refuse("head_dim " + std::to_string(shape.head_dim) +
           " is not available on GPUs, which serve 64, 128 and 256; use the CPU backend");
  }
  PoolShape pool;
  pool.num_kv_heads = shape.num_kv_heads;
  pool.head_dim = shape.head_dim;
  pool.page_shift = std::countr_zero(static_cast<unsigned>(shape.page_size));
  pool.num_pages = shape.num_pages;
  pool.bf16 = shape.type == KvType::kBF16;
  pool.summary_type = shape.summary_type;
  return pool;
}

}  // namespace

DevicePool::DevicePool(KvCache& cache, Device& device)
    : cache_(cache),
      device_(device),
      shape_(checked_shape(cache.shape())),
      num_layers_(cache.shape().num_layers),
      page_elements_(cache.shape().page_elements() * shape_.num_kv_heads),
      k_(device),
      v_(device),
      summaries_(device),
      rounded_summaries_(device),
      summary_scales_(device),
      touched_(device),
      counts_(device) {
  if (cache.free_pages() != shape_.num_pages) {
    refuse("the KV cache holds tokens already; make the backend before the first sequence");
  }
  const std::int64_t planned = planned_bytes(cache.shape());
  const std::int64_t free = device.free_memory();
  if (planned > free) {
    throw Error("CUDA: the KV cache takes " + std::to_string(planned) +
                " bytes of device memory, " + std::to_string(free) +
                " are free; use a smaller context");
  }
  const std::int64_t elements = num_layers_ * shape_.num_pages * page_elements_;
  const std::int64_t summaries = num_layers_ * shape_.num_pages * shape_.num_kv_heads;
  k_.grow(elements);
  v_.grow(elements);
  if (shape_.summary_type == SummaryType::kPlain) {
    summaries_.grow(summaries * 2 * shape_.head_dim);
  } else {
    rounded_summaries_.grow(summaries * summary_bytes(shape_));
    summary_scales_.grow(summaries * summary_scales(shape_));
  }
  counts_.grow(1);
  cache_.listen(this);
}

DevicePool::~DevicePool() { cache_.listen(nullptr); }

std::int64_t DevicePool::planned_bytes(const CacheShape& shape) {
  checked_shape(shape);
  return KvCache::planned_bytes(shape);
}

LayerPool DevicePool::layer(std::int32_t layer) const {
  const std::int64_t keys = layer * shape_.num_pages * page_elements_;
  const std::int64_t summaries = layer * shape_.num_pages * shape_.num_kv_heads;
  LayerPool pool;
  pool.k = k_.data() + keys;
  pool.v = v_.data() + keys;
  if (shape_.summary_type == SummaryType::kPlain) {
    pool.summaries = summaries_.data() + summaries * 2 * shape_.head_dim;
  } else {
    pool.rounded_summaries = rounded_summaries_.data() + summaries * summary_bytes(shape_);
    pool.summary_scales = summary_scales_.data() + summaries * summary_scales(shape_);
  }
  return pool;
}

void DevicePool::catch_up() {
  if (!error_) {
    try {
      upload_stored();
    } catch (...) {
      error_ = std::current_exception();
    }
  }
  if (error_) std::rethrow_exception(error_);
}

void DevicePool::copied(std::int32_t from, std::int32_t to) noexcept {
  try {
    upload_stored();
    for (std::int32_t i = 0; i < num_layers_; ++i) {
      LayerArgs args;
      args.shape = shape_;
      args.pool = layer(i);
      args.layer = i;
      args.copy_from = from;
      args.copy_to = to;
      device_.launch(Kernel::kCopyPage, args, shape_.num_kv_heads);
    }
  } catch (...) {
    error_ = std::current_exception();
  }
}

void DevicePool::cut(std::int32_t page, std::int32_t tokens) noexcept {
  try {
    upload_stored();
    summarise({{page, tokens}});
  } catch (...) {
    error_ = std::current_exception();
  }
}

void DevicePool::stored(std::int32_t page, std::int32_t slot, std::int32_t count) noexcept {
  const std::lock_guard lock(mutex_);
  const auto [entry, added] = pending_.try_emplace(page, Slots{slot, slot + count});
  if (added) return;
  entry->second.first = std::min(entry->second.first, slot);
  entry->second.end = std::max(entry->second.end, slot + count);
}

void DevicePool::upload_stored() {
  std::map<std::int32_t, Slots> pending;
  {
    const std::lock_guard lock(mutex_);
    pending.swap(pending_);
  }
  if (pending.empty()) return;
  std::vector<TouchedPage> touched;
  for (const auto& [page, slots] : pending) {
    for (std::int32_t i = 0; i < num_layers_; ++i) upload_slots(i, page, slots);
    touched.push_back({page, slots.end});
  }
  summarise(touched);
}

/// The host keeps keys by channel, the device by token.
void DevicePool::upload_slots(std::int32_t layer_index, std::int32_t page, const Slots& slots) {
  const PagedKv host = cache_.layer(layer_index);
  const LayerPool pool = layer(layer_index);
  const std::int64_t d = shape_.head_dim;
  const std::int64_t page_size = shape_.page_size();
  const std::int64_t count = slots.end - slots.first;
  const std::int64_t bytes = count * d * static_cast<std::int64_t>(sizeof(std::uint16_t));
  staging_.resize(static_cast<std::size_t>(count * d));
  for (std::int32_t head = 0; head < shape_.num_kv_heads; ++head) {
    const auto* const columns = reinterpret_cast<const std::uint16_t*>(host.k_page(page, head));
    for (std::int64_t j = 0; j < d; ++j) {
      for (std::int64_t t = 0; t < count; ++t) {
        staging_[static_cast<std::size_t>(t * d + j)] = columns[j * page_size + slots.first + t];
      }
    }
    // Slots that hold no token are left alone.
    const std::int64_t offset =
        ((std::int64_t{page} * shape_.num_kv_heads + head) * page_size + slots.first) * d;
    device_.upload(pool.k + offset, staging_.data(), bytes);
    device_.upload(pool.v + offset, host.v_page(page, head) + slots.first * d * 2, bytes);
  }
}

void DevicePool::summarise(const std::vector<TouchedPage>& pages) {
  StepCounts counts;
  counts.touched = static_cast<std::int32_t>(pages.size());
  touched_.grow(counts.touched);
  device_.upload(touched_.data(), pages.data(),
                 counts.touched * static_cast<std::int64_t>(sizeof(TouchedPage)));
  device_.upload(counts_.data(), &counts, sizeof counts);
  for (std::int32_t i = 0; i < num_layers_; ++i) {
    LayerArgs args;
    args.shape = shape_;
    args.pool = layer(i);
    args.layer = i;
    args.counts = counts_.data();
    args.touched = touched_.data();
    device_.launch(Kernel::kAppendSummarise, args,
                   std::min<std::int64_t>(std::int64_t{counts.touched} * shape_.num_kv_heads,
                                          std::int64_t{16} * device_.multiprocessors()));
  }
}

}  // namespace quest::cuda
