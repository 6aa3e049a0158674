// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace quest {

/// Element type of cached keys, values and their summaries.
enum class KvType { kF32, kF16, kBF16 };

/// Bytes of one element.
constexpr std::size_t size_of(KvType type) { return type == KvType::kF32 ? 4 : 2; }

/// "f32", "f16", "bf16".
constexpr std::string_view name_of(KvType type) {
  switch (type) {
    case KvType::kF32:
      return "f32";
    case KvType::kF16:
      return "f16";
    case KvType::kBF16:
      return "bf16";
  }
  return "?";
}

/// Inverse of `name_of`; nothing for any other text.
constexpr std::optional<KvType> parse_kv_type(std::string_view text) {
  for (KvType type : {KvType::kF32, KvType::kF16, KvType::kBF16}) {
    if (text == name_of(type)) return type;
  }
  return std::nullopt;
}

}  // namespace quest
