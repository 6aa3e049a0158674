// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "model/hyperparameters.h"

#include <cmath>

#include "model/gguf_file.h"
#include "quest/error.h"

namespace quest {

namespace {

struct ArchitectureEntry {
  const char* name;
  Architecture architecture;
  bool neox;
};

// Mistral and SmolLM2 files carry the name "llama".
constexpr ArchitectureEntry kArchitectures[] = {
    {"llama", Architecture::kLlama, false},
    {"qwen2", Architecture::kQwen2, true},
    {"qwen3", Architecture::kQwen3, true},
};

const ArchitectureEntry& find_architecture(const GgufFile& file) {
  const auto name = file.text("general.architecture");
  if (!name) throw FileError(file.path() + ": key general.architecture is missing");
  for (const ArchitectureEntry& entry : kArchitectures) {
    if (*name == entry.name) return entry;
  }
  throw UnsupportedModel(file.path() + ": architecture \"" + *name +
                         "\" is not supported; this engine runs llama (with Mistral and SmolLM2), "
                         "qwen2 and qwen3");
}

void refuse_unsupported(const GgufFile& file, const std::string& prefix) {
  if (file.integer(prefix + "expert_count").value_or(0) > 0) {
    throw UnsupportedModel(file.path() + ": mixture of experts (" + prefix +
                           "expert_count) is not supported");
  }
  if (file.integer(prefix + "attention.sliding_window").value_or(0) > 0) {
    throw UnsupportedModel(file.path() + ": sliding-window attention (" + prefix +
                           "attention.sliding_window) is not supported");
  }
}

Rope read_rope(const GgufFile& file, const std::string& prefix, std::int64_t context) {
  Rope rope;
  const std::string scaling_key = prefix + "rope.scaling.type";
  // Files without the key but with a factor mean linear scaling, as libllama reads them.
  rope.scaling = file.text(scaling_key).value_or("linear");
  if (rope.scaling != "none" && rope.scaling != "linear" && rope.scaling != "yarn") {
    throw UnsupportedModel(file.path() + ": RoPE scaling \"" + rope.scaling + "\" (" + scaling_key +
                           ") is not supported; this engine runs none, linear, yarn and Llama-3 "
                           "factors");
  }
  rope.freq_base = file.real(prefix + "rope.freq_base").value_or(10000.0F);
  auto factor = file.real(prefix + "rope.scaling.factor");
  if (!factor) factor = file.real(prefix + "rope.scale_linear");
  const float scale = factor.value_or(0.0F);
  if (!std::isfinite(rope.freq_base) || rope.freq_base <= 0) {
    throw FileError(file.path() + ": key " + prefix + "rope.freq_base is not a positive number");
  }
  if (!std::isfinite(scale) || scale < 0) {
    throw FileError(file.path() + ": key " + prefix +
                    "rope.scaling.factor is not a positive number");
  }
  rope.freq_scale = scale == 0 || rope.scaling == "none" ? 1.0F : 1.0F / scale;
  if (rope.scaling == "linear" && rope.freq_scale == 1.0F) rope.scaling = "none";
  rope.original_context =
      file.integer(prefix + "rope.scaling.original_context_length").value_or(context);
  rope.attn_factor = file.real(prefix + "rope.scaling.attn_factor").value_or(1.0F);
  if (rope.scaling == "yarn") {
    rope.ext_factor = 1;
    // ggml multiplies by 1 + 0.1 ln(factor) itself, which is YaRN's magnitude for factor > 1; below
    // that the magnitude must stay 1.
    const float ratio = 1.0F / rope.freq_scale;
    if (ratio < 1.0F) rope.attn_factor /= 1.0F + 0.1F * std::log(ratio);
  }
  return rope;
}

void check_heads(const GgufFile& file, const std::string& prefix, const Hyperparameters& h) {
  if (h.num_layers < 1 || h.num_layers > 1024) {
    throw FileError(file.path() + ": key " + prefix + "block_count has the absurd value " +
                    std::to_string(h.num_layers));
  }
  if (h.num_q_heads < 1 || h.num_kv_heads < 1 || h.num_q_heads % h.num_kv_heads != 0) {
    throw FileError(file.path() + ": key " + prefix + "attention.head_count " +
                    std::to_string(h.num_q_heads) + " is not a multiple of head_count_kv " +
                    std::to_string(h.num_kv_heads));
  }
  for (std::int64_t supported : {64, 80, 96, 128, 256}) {
    if (h.head_dim == supported) return;
  }
  throw UnsupportedModel(file.path() + ": head size " + std::to_string(h.head_dim) + " (" + prefix +
                         "attention.key_length) is not supported; this engine runs 64, 80, 96, 128 "
                         "and 256");
}

void require_positive(const GgufFile& file, const std::string& key, std::int64_t value) {
  if (value < 1) {
    throw FileError(file.path() + ": key " + key + " is " + std::to_string(value) +
                    ", must be at least 1");
  }
}

}  // namespace

Hyperparameters read_hyperparameters(const GgufFile& file) {
  const ArchitectureEntry& entry = find_architecture(file);
  const std::string prefix = std::string(entry.name) + ".";
  refuse_unsupported(file, prefix);

  Hyperparameters h;
  h.architecture_name = entry.name;
  h.architecture = entry.architecture;
  h.num_layers = file.required_integer(prefix + "block_count");
  h.embedding_dim = file.required_integer(prefix + "embedding_length");
  h.feed_forward_dim = file.required_integer(prefix + "feed_forward_length");
  h.context = file.required_integer(prefix + "context_length");
  h.num_q_heads = file.required_integer(prefix + "attention.head_count");
  h.num_kv_heads = file.integer(prefix + "attention.head_count_kv").value_or(h.num_q_heads);
  h.rms_epsilon = file.required_real(prefix + "attention.layer_norm_rms_epsilon");
  require_positive(file, prefix + "attention.head_count", h.num_q_heads);
  require_positive(file, prefix + "embedding_length", h.embedding_dim);
  require_positive(file, prefix + "feed_forward_length", h.feed_forward_dim);
  require_positive(file, prefix + "context_length", h.context);
  if (!std::isfinite(h.rms_epsilon) || h.rms_epsilon < 0) {
    throw FileError(file.path() + ": key " + prefix +
                    "attention.layer_norm_rms_epsilon is not a number from zero up");
  }
  h.head_dim =
      file.integer(prefix + "attention.key_length").value_or(h.embedding_dim / h.num_q_heads);
  check_heads(file, prefix, h);
  const std::int64_t value_length =
      file.integer(prefix + "attention.value_length").value_or(h.head_dim);
  const std::int64_t rotated = file.integer(prefix + "rope.dimension_count").value_or(h.head_dim);
  if (value_length != h.head_dim || rotated != h.head_dim) {
    throw UnsupportedModel(
        file.path() + ": value length " + std::to_string(value_length) + " (" + prefix +
        "attention.value_length) and rotated dimensions " + std::to_string(rotated) + " (" +
        prefix + "rope.dimension_count) must equal the head size " + std::to_string(h.head_dim));
  }
  h.vocabulary = file.array_size("tokenizer.ggml.tokens");
  h.rope = read_rope(file, prefix, h.context);
  h.rope.neox = entry.neox;
  return h;
}

}  // namespace quest
