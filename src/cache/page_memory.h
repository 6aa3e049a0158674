// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace quest {

/// Zero-filled anonymous memory for the page pool, aligned to 2 MB and marked for huge pages. The
/// system hands out physical memory at the first touch, so an unused part of a pool costs nothing.
class PageMemory {
 public:
  static constexpr std::size_t kAlignment = std::size_t{2} << 20;

  /// Throws Error naming the size if the system refuses.
  explicit PageMemory(std::int64_t bytes);
  ~PageMemory();
  PageMemory(const PageMemory&) = delete;
  PageMemory& operator=(const PageMemory&) = delete;

  std::byte* data() const { return data_; }
  std::int64_t size() const { return static_cast<std::int64_t>(bytes_); }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace quest
