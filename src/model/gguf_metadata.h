// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>

#include "gguf.h"
#include "quest/error.h"

namespace quest {

/// The text with bytes that a terminal should not see replaced, cut to a readable length.
std::string printable(std::string_view text);

/// Reads a byte range from front to back. Every read is bounded: one that does not fit throws
/// FileError "<name>: truncated in <field>".
class GgufReader {
 public:
  GgufReader(std::span<const std::byte> bytes, const std::string& name)
      : bytes_(bytes), name_(name) {}

  template <typename T>
  T read(const std::string& field) {
    const std::span<const std::byte> raw = take(sizeof(T), field);
    T value;
    std::memcpy(&value, raw.data(), sizeof(T));
    return value;
  }
  /// A length-prefixed string; refers to the file's bytes.
  std::string_view read_string(const std::string& field);
  std::span<const std::byte> take(std::uint64_t count, const std::string& field);

  std::uint64_t offset() const { return offset_; }
  std::uint64_t remaining() const { return bytes_.size() - offset_; }
  const std::string& name() const { return name_; }
  [[noreturn]] void fail(const std::string& field, const std::string& problem) const;

 private:
  std::span<const std::byte> bytes_;
  const std::string& name_;
  std::uint64_t offset_ = 0;
};

/// One value of the key section. `payload` is its bytes in the file: the scalar, the string's
/// characters, the array's elements (for an array of strings with their length prefixes).
struct GgufValue {
  gguf_type type = GGUF_TYPE_COUNT;
  gguf_type element = GGUF_TYPE_COUNT;  ///< of an array, else equal to `type`
  std::uint64_t count = 1;              ///< of an array
  std::span<const std::byte> payload;

  bool is_array() const { return type == GGUF_TYPE_ARRAY; }
  std::string_view text() const {
    return {reinterpret_cast<const char*>(payload.data()), payload.size()};
  }
  template <typename T>
  T scalar() const {
    T value;
    std::memcpy(&value, payload.data(), sizeof(T));
    return value;
  }
};

using GgufKeys = std::unordered_map<std::string_view, GgufValue>;

/// Checks the keys that libllama's vocabulary loader reads. Throws FileError, UnsupportedModel.
void check_tokenizer_keys(const GgufKeys& keys, const std::string& name);

}  // namespace quest
