// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "attention/cpu/kernels.h"

#include <algorithm>

#include "attention/cpu/kernel_getters.h"
#include "attention/cpu/prefill_amx_layout.h"
#include "attention/cpu/prefill_layout.h"

namespace quest::cpu {

Kernels kernels_for(const CacheShape& shape) {
  const PrefillKernel by_tiles = prefill_amx_kernel(shape.type);
  return {score_kernel(shape.summary_type, shape.plain_summary()),
          attend_kernel(shape.type),
          logits_kernel(shape.type),
          values_kernel(shape.type),
          by_tiles != nullptr ? by_tiles : prefill_kernel(shape.type),
          magnitude_kernel(shape.summary_type, shape.plain_summary()),
          probe_kernel(shape.type)};
}

std::int64_t attend_scratch_floats(std::int32_t head_dim) {
  return std::int64_t{kMaxHeadsInPass} * (kAttendLogitStride + head_dim);
}

std::int64_t prefill_scratch_floats(std::int32_t virtual_rows, std::int32_t head_dim) {
  return std::max(PrefillScratch::floats(virtual_rows, head_dim),
                  AmxScratch::floats(virtual_rows, head_dim));
}

}  // namespace quest::cpu
