// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "quest/kv_type.h"

namespace quest {

// Plain element types only: a q8_0 row is more than its elements.

/// Rounds `count` floats to `type` (nearest even) into `out`.
void encode(KvType type, const float* in, std::byte* out, std::int64_t count);
/// Widens `count` elements of `type` to float.
void decode(KvType type, const std::byte* in, float* out, std::int64_t count);

}  // namespace quest
