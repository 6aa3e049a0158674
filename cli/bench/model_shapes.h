// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace quest::cli {

/// The published dimensions of a well-known model.
struct ModelShape {
  const char* name;
  const char* architecture;  ///< GGUF's name of it
  std::int32_t layers;
  std::int32_t embedding;
  std::int32_t feed_forward;
  std::int32_t q_heads;
  std::int32_t kv_heads;
  std::int32_t head_dim;
  std::int32_t vocabulary;
  std::int32_t context;
  bool tied;  ///< the embedding table is the output head as well
  float freq_base;
  float rms_epsilon;
  float llama3_factor;  ///< of RoPE's slow pairs, 0: plain RoPE
};

std::span<const ModelShape> model_shapes();

/// Throws InvalidArgument listing the names if this is none of them; `flag` is what named it.
const ModelShape& model_shape(const std::string& name, const std::string& flag);

}  // namespace quest::cli
