// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <exception>
#include <map>
#include <mutex>
#include <vector>

#include "attention/cuda/device.h"
#include "quest/kv_cache.h"
#include "quest/page_listener.h"

namespace quest::cuda {

/// Keys, values and summaries of a KV cache in device memory, page for page: physical page p of the
/// cache is page p here, so page tables serve both. Copies and cuts of pages are repeated on the
/// device at once, but for the summary of a copy, which nothing reads before it is made anew;
/// tokens that were stored on the host (a restored session, say) go over before the next step. What
/// the backend appends exists on the device only.
class DevicePool final : public PageListener {
 public:
  /// Allocates the pool. Throws InvalidArgument for a cache that the kernels do not serve or that
  /// holds tokens already, Error if the device's memory does not suffice. Both must outlive it.
  DevicePool(KvCache& cache, Device& device);
  ~DevicePool() override;
  DevicePool(const DevicePool&) = delete;

  /// Device bytes that the pool of such a cache takes, exactly.
  static std::int64_t planned_bytes(const CacheShape& shape);

  const PoolShape& shape() const { return shape_; }
  LayerPool layer(std::int32_t layer) const;

  /// Makes the summaries of these pages anew in all layers, from what the device holds.
  void summarise(const std::vector<TouchedPage>& pages);
  /// Brings over what the host stored. Throws what went wrong here or since the last call, and from
  /// then on always: the device's pages are no longer the cache's.
  void catch_up();

  void copied(std::int32_t from, std::int32_t to) noexcept override;
  void cut(std::int32_t page, std::int32_t tokens) noexcept override;
  void stored(std::int32_t page, std::int32_t slot, std::int32_t count) noexcept override;

 private:
  struct Slots {
    std::int32_t first = 0;
    std::int32_t end = 0;
  };

  void upload_stored();
  void upload_slots(std::int32_t layer, std::int32_t page, const Slots& slots);

  KvCache& cache_;
  Device& device_;
  PoolShape shape_;
  std::int64_t num_layers_;
  std::int64_t page_elements_;                  ///< of all KV heads of one layer, keys alone
  DeviceArray<std::uint16_t> k_;                ///< [num_layers, LayerPool::k]
  DeviceArray<std::uint16_t> v_;                ///< the same
  DeviceArray<std::uint16_t> summaries_;        ///< [num_layers, LayerPool::summaries], or empty
  DeviceArray<std::int8_t> rounded_summaries_;  ///< [num_layers, LayerPool::rounded_summaries]
  DeviceArray<std::uint16_t> summary_scales_;
  DeviceArray<TouchedPage> touched_;
  DeviceArray<StepCounts> counts_;
  std::vector<std::uint16_t> staging_;  ///< one page of one layer

  std::mutex mutex_;                       ///< of `pending_`
  std::map<std::int32_t, Slots> pending_;  ///< by page: slots that the host stored
  std::exception_ptr error_;
};

}  // namespace quest::cuda
