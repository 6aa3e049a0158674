// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "bench/model_shapes.h"

#include "quest/error.h"

namespace quest::cli {
namespace {

// layers, embedding, feed forward, query heads, KV heads, head size, vocabulary, context, tied …
constexpr ModelShape kShapes[] = {
    {"llama-3.1-8b", "llama", 32, 4096, 14336, 32, 8, 128, 128256, 131072, false, 500000, 1e-5F, 8},
    {"llama-3.2-1b", "llama", 16, 2048, 8192, 32, 8, 64, 128256, 131072, true, 500000, 1e-5F, 32},
    {"llama-3.2-3b", "llama", 28, 3072, 8192, 24, 8, 128, 128256, 131072, true, 500000, 1e-5F, 32},
    {"qwen2.5-0.5b", "qwen2", 24, 896, 4864, 14, 2, 64, 151936, 32768, true, 1000000, 1e-6F, 0},
    {"qwen2.5-1.5b", "qwen2", 28, 1536, 8960, 12, 2, 128, 151936, 32768, true, 1000000, 1e-6F, 0},
    {"qwen3-0.6b", "qwen3", 28, 1024, 3072, 16, 8, 128, 151936, 40960, true, 1000000, 1e-6F, 0},
    {"smollm2-135m", "llama", 30, 576, 1536, 9, 3, 64, 49152, 8192, true, 100000, 1e-5F, 0},
    {"smollm2-360m", "llama", 32, 960, 2560, 15, 5, 64, 49152, 8192, true, 100000, 1e-5F, 0},
};

}  // namespace

std::span<const ModelShape> model_shapes() { return kShapes; }

const ModelShape& model_shape(const std::string& name, const std::string& flag) {
  std::string names;
  for (const ModelShape& shape : kShapes) {
    if (name == shape.name) return shape;
    names += (names.empty() ? "" : ", ") + std::string(shape.name);
  }
  throw InvalidArgument(flag + " '" + name + "' is unknown; use one of: " + names);
}

}  // namespace quest::cli
