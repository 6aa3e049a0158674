// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "core/elements.h"

#include <ggml-cpu.h>
#include <ggml.h>

#include <cassert>
#include <cstring>

namespace quest {

void encode(KvType type, const float* in, std::byte* out, std::int64_t count) {
  switch (type) {
    case KvType::kF32:
      std::memcpy(out, in, static_cast<std::size_t>(count) * sizeof(float));
      break;
    case KvType::kF16:
      // The CPU backend's conversion is vectorised; ggml_fp32_to_fp16_row is not, and took most of
      // the append stage.
      ggml_cpu_fp32_to_fp16(in, reinterpret_cast<ggml_fp16_t*>(out), count);
      break;
    case KvType::kBF16:
      ggml_fp32_to_bf16_row(in, reinterpret_cast<ggml_bf16_t*>(out), count);
      break;
    case KvType::kQ8_0:
      assert(false && "quantised rows carry scales: see cache/quantise.h");
      break;
  }
}

void decode(KvType type, const std::byte* in, float* out, std::int64_t count) {
  switch (type) {
    case KvType::kF32:
      std::memcpy(out, in, static_cast<std::size_t>(count) * sizeof(float));
      break;
    case KvType::kF16:
      ggml_fp16_to_fp32_row(reinterpret_cast<const ggml_fp16_t*>(in), out, count);
      break;
    case KvType::kBF16:
      ggml_bf16_to_fp32_row(reinterpret_cast<const ggml_bf16_t*>(in), out, count);
      break;
    case KvType::kQ8_0:
      assert(false && "quantised pages carry scales: see cache/page_codec.h");
      break;
  }
}

}  // namespace quest
