// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace quest {

/// Told by a `KvCache` whenever it changes what pages hold, so that a copy of the pool elsewhere,
/// in a GPU's memory, can follow (SPEC S7.1–S7.3). Calls come after the change, and must not throw.
/// `copied` and `cut` come from the one thread that may change sequences; `stored` comes from any
/// thread that appends.
class PageListener {
 public:
  virtual ~PageListener() = default;
  /// Page `to` now holds in all layers what `from` holds.
  virtual void copied(std::int32_t from, std::int32_t to) noexcept = 0;
  /// `page` now counts for its first `tokens` tokens only: its summaries were rebuilt from them.
  virtual void cut(std::int32_t page, std::int32_t tokens) noexcept = 0;
  /// `count` tokens from slot `slot` on were stored in one layer and KV head of `page`.
  virtual void stored(std::int32_t page, std::int32_t slot, std::int32_t count) noexcept = 0;
};

}  // namespace quest
