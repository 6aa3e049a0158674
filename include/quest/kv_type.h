// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace quest {

/// Type of cached keys and values. q8_0 holds 8-bit integers with one f16 scale for every 32
/// channels of a token, quantised as ggml's q8_0 is.
enum class KvType { kF32, kF16, kBF16, kQ8_0 };

/// How page summaries are stored: kPlain in the type of the keys (in f16 for q8_0 keys), kQ8 as
/// 8-bit integers with one f16 scale for every 32 channels, kQ4 as centre and half-width of both
/// bounds in one byte a channel, with an f16 scale of either for every 32 channels. Where a bound
/// is not representable it is rounded outward: a summary never claims less than the stored keys
/// reach (SPEC S7.6).
enum class SummaryType { kPlain, kQ8, kQ4 };

/// Channels of a token, or of a summary, that share one scale. The last block may be shorter.
inline constexpr int kScaleBlock = 32;

/// Bytes of one element, scales apart.
constexpr std::size_t size_of(KvType type) {
  switch (type) {
    case KvType::kF32:
      return 4;
    case KvType::kF16:
    case KvType::kBF16:
      return 2;
    case KvType::kQ8_0:
      return 1;
  }
  return 0;
}

/// "f32", "f16", "bf16", "q8_0".
constexpr std::string_view name_of(KvType type) {
  switch (type) {
    case KvType::kF32:
      return "f32";
    case KvType::kF16:
      return "f16";
    case KvType::kBF16:
      return "bf16";
    case KvType::kQ8_0:
      return "q8_0";
  }
  return "?";
}

/// "plain", "q8", "q4".
constexpr std::string_view name_of(SummaryType type) {
  switch (type) {
    case SummaryType::kPlain:
      return "plain";
    case SummaryType::kQ8:
      return "q8";
    case SummaryType::kQ4:
      return "q4";
  }
  return "?";
}

/// Inverse of `name_of`; nothing for any other text.
constexpr std::optional<KvType> parse_kv_type(std::string_view text) {
  for (KvType type : {KvType::kF32, KvType::kF16, KvType::kBF16, KvType::kQ8_0}) {
    if (text == name_of(type)) return type;
  }
  return std::nullopt;
}

/// Inverse of `name_of`; nothing for any other text.
constexpr std::optional<SummaryType> parse_summary_type(std::string_view text) {
  for (SummaryType type : {SummaryType::kPlain, SummaryType::kQ8, SummaryType::kQ4}) {
    if (text == name_of(type)) return type;
  }
  return std::nullopt;
}

}  // namespace quest
