// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <utility>

namespace quest {

/// Holds back the bytes of a character that tokens deliver in pieces. Bytes that can never become
/// valid UTF-8 pass through unchanged.
class Utf8Buffer {
 public:
  /// Adds bytes; returns everything up to the last whole character.
  std::string push(std::string_view bytes) {
    pending_ += bytes;
    const std::size_t complete = pending_.size() - incomplete_tail();
    std::string ready = pending_.substr(0, complete);
    pending_.erase(0, complete);
    return ready;
  }
  /// What is left at the end.
  std::string flush() { return std::exchange(pending_, {}); }

 private:
  // Bytes at the end that start a character without finishing it; at most three.
  std::size_t incomplete_tail() const {
    for (std::size_t back = 1; back <= 3 && back <= pending_.size(); ++back) {
      const auto byte = static_cast<unsigned char>(pending_[pending_.size() - back]);
      if ((byte & 0xC0U) == 0x80U) continue;          // a continuation byte: look further back
      const std::size_t length = byte >= 0xF8U   ? 1  // never part of UTF-8
                                 : byte >= 0xF0U ? 4
                                 : byte >= 0xE0U ? 3
                                 : byte >= 0xC2U ? 2
                                                 : 1;
      return length > back ? back : 0;
    }
    return 0;
  }

  std::string pending_;
};

}  // namespace quest
