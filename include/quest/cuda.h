// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "quest/attention.h"

namespace quest {

/// Whether the library was built with GPU support (-DQUEST_CUDA=ON).
bool built_with_cuda();

/// The attention operator on an NVIDIA GPU of architecture 8.0 or newer (SPEC S12): keys, values,
/// summaries and attention on the device, rows to and from it at every layer. Keys and values in
/// f16 or bf16, head_dim 64, 128 or 256, up to 16 query heads a KV head, no certificates. `cache`
/// must be empty and outlive the backend; it keeps page tables, and its own memory stays untouched.
/// Throws InvalidArgument for a cache, a policy or a `device` that is not served, naming it; Error
/// when the library was built without CUDA, when there is no device or no kernel for it, and when
/// its memory does not suffice.
std::unique_ptr<AttentionBackend> make_cuda_backend(KvCache& cache, SelectionPolicy policy,
                                                    int device = 0);

/// Throws the Error that `make_cuda_backend` would throw for want of CUDA or of a device.
void require_cuda();

}  // namespace quest
