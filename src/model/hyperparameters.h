// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace quest {

class GgufFile;

enum class Architecture { kLlama, kQwen2, kQwen3 };

/// Arguments of ggml's rotary embedding, as GGUF's keys describe it.
struct Rope {
  std::string scaling = "none";  ///< "none", "linear", "yarn"; "llama3" once its factors are found
  bool neox = false;             ///< halves rotated (Qwen) instead of neighbours (Llama)
  float freq_base = 10000;
  float freq_scale = 1;
  std::int64_t original_context = 0;
  float ext_factor = 0;  ///< 1 for YaRN
  float attn_factor = 1;
  float beta_fast = 32;
  float beta_slow = 1;
};

/// What the graph needs to know of a model.
struct Hyperparameters {
  std::string architecture_name;
  Architecture architecture = Architecture::kLlama;
  std::int64_t num_layers = 0;
  std::int64_t num_q_heads = 0;
  std::int64_t num_kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t embedding_dim = 0;
  std::int64_t feed_forward_dim = 0;
  std::int64_t vocabulary = 0;
  std::int64_t context = 0;
  float rms_epsilon = 0;
  Rope rope;
};

/// Reads and checks the keys. Throws FileError for missing or absurd values, UnsupportedModel for
/// an architecture or feature that the engine does not run, both naming file and key.
Hyperparameters read_hyperparameters(const GgufFile& file);

}  // namespace quest
