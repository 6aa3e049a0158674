// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "attention/cpu/kernels.h"

#include "attention/cpu/kernel_getters.h"
#include "attention/cpu/prefill_layout.h"

namespace quest::cpu {

Kernels kernels_for(const CacheShape& shape) {
  return {score_kernel(shape.summary_type, shape.plain_summary()), attend_kernel(shape.type),
          prefill_kernel(shape.type)};
}

std::int64_t attend_scratch_floats(std::int32_t head_dim) {
  return std::int64_t{kMaxHeadsInPass} * (kAttendLogitStride + head_dim);
}

std::int64_t prefill_scratch_floats(std::int32_t virtual_rows, std::int32_t head_dim) {
  return PrefillScratch::floats(virtual_rows, head_dim);
}

}  // namespace quest::cpu
