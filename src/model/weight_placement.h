// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ggml-cpp.h>

#include <vector>

namespace quest {

/// The types that ggml multiplies slowly by many rows on CPUs and that gain from another encoding,
/// and what to re-encode them to; the type itself where nothing is gained (docs/architecture.md).
ggml_type prefill_type(ggml_type stored);

/// ggml's special buffer type (repacked layout) that multiplies this matrix, or null for plain
/// memory.
ggml_backend_buffer_type_t matrix_buffer_type(const ggml_tensor* matrix);

/// Re-encodes `source` (any ggml type, rows of ne[0] elements) to `type`, by `threads` threads.
std::vector<std::byte> reencode(const ggml_tensor* source, const std::byte* data, ggml_type type,
                                int threads);

}  // namespace quest
