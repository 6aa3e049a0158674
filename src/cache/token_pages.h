// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

namespace quest {

/// Calls `body(page, first_slot, slots, done)` for each page that the tokens touch.
template <typename Body>
void for_each_page(std::int32_t page_size, std::span<const std::int32_t> pages,
                   std::int64_t position, std::int64_t count, const Body& body) {
  for (std::int64_t done = 0; done < count;) {
    const std::int64_t slot = (position + done) % page_size;
    const std::int64_t slots = std::min(count - done, page_size - slot);
    body(pages[(position + done) / page_size], slot, slots, done);
    done += slots;
  }
}

}  // namespace quest
