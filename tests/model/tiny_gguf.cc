// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "model/tiny_gguf.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <stdexcept>

#include "gguf.h"
#include "model/tiny_vocabulary.h"

namespace quest::testing {
namespace {

std::string unique_path() {
  static std::atomic<int> counter{0};
  const std::string name =
      "quest-test-" + std::to_string(::getpid()) + "-" + std::to_string(counter++) + ".gguf";
  return (std::filesystem::temp_directory_path() / name).string();
}

class Writer {
 public:
  explicit Writer(const TinyModel& model)
      : model_(model), gguf_(gguf_init_empty()), random_(model.seed) {
    const ggml_init_params params = {std::size_t{96} << 20, nullptr, false};
    context_ = ggml_init(params);
  }
  ~Writer() {
    ggml_free(context_);
    gguf_free(gguf_);
  }
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  void write(const std::string& path) {
    add_keys();
    add_rope_keys();
    add_vocabulary_keys(gguf_, model_);
    if (model_.edit) model_.edit(gguf_);
    add_tensors();
    if (!gguf_write_to_file(gguf_, path.c_str(), false)) {
      throw std::runtime_error("cannot write " + path);
    }
  }

 private:
  std::string key(const std::string& suffix) const { return model_.architecture + "." + suffix; }
  void set(const std::string& suffix, std::int32_t value) {
    gguf_set_val_u32(gguf_, key(suffix).c_str(), static_cast<std::uint32_t>(value));
  }
  void set(const std::string& suffix, float value) {
    gguf_set_val_f32(gguf_, key(suffix).c_str(), value);
  }

  void add_keys() {
    gguf_set_val_str(gguf_, "general.architecture", model_.architecture.c_str());
    gguf_set_val_str(gguf_, "general.name", "tiny");
    gguf_set_val_u32(gguf_, "general.alignment", GGUF_DEFAULT_ALIGNMENT);
    set("block_count", model_.layers);
    set("context_length", model_.context);
    set("embedding_length", model_.embedding);
    set("feed_forward_length", model_.feed_forward);
    set("attention.head_count", model_.heads);
    set("attention.head_count_kv", model_.kv_heads);
    set("attention.layer_norm_rms_epsilon", 1e-5F);
    if (model_.heads * model_.head_dim != model_.embedding) {
      set("attention.key_length", model_.head_dim);
      set("attention.value_length", model_.head_dim);
    }
    if (model_.architecture == "llama") set("rope.dimension_count", model_.head_dim);
  }

  void add_rope_keys() {
    set("rope.freq_base", model_.freq_base);
    const auto set_type = [&](const char* type) {
      gguf_set_val_str(gguf_, key("rope.scaling.type").c_str(), type);
      set("rope.scaling.factor", model_.rope_factor);
    };
    if (model_.rope == TinyRope::kLinear) set_type("linear");
    if (model_.rope == TinyRope::kYarn) set_type("yarn");
    if (model_.original_context != 0) {
      set("rope.scaling.original_context_length", model_.original_context);
    }
    if (model_.rope_attn_factor != 0) set("rope.scaling.attn_factor", model_.rope_attn_factor);
    if (model_.yarn_beta_fast != 0) set("rope.scaling.yarn_beta_fast", model_.yarn_beta_fast);
  }

  void add_tensors() {
    const std::int64_t wide = std::int64_t{model_.heads} * model_.head_dim;
    const std::int64_t narrow = std::int64_t{model_.kv_heads} * model_.head_dim;
    const std::int64_t dim = model_.embedding;
    const std::int64_t inner = model_.feed_forward;
    // Small embeddings keep tied logits in a useful range; the norms undo it inside the layers.
    add("token_embd.weight", {dim, model_.vocabulary}, 2.5F / std::sqrt(static_cast<float>(dim)));
    add_norm("output_norm.weight", dim);
    if (!model_.tied) add_matrix("output.weight", dim, model_.vocabulary, 2.5F);
    if (model_.rope == TinyRope::kLlama3) add_llama3_factors();
    const bool qkv_bias = model_.qkv_bias || model_.architecture == "qwen2";
    for (std::int32_t i = 0; i < model_.layers; ++i) {
      const std::string layer = "blk." + std::to_string(i) + ".";
      add_norm(layer + "attn_norm.weight", dim);
      // Queries and keys this large give attention weights that differ by orders of magnitude.
      add_matrix(layer + "attn_q.weight", dim, wide, 1.6F);
      add_matrix(layer + "attn_k.weight", dim, narrow, 1.6F);
      add_matrix(layer + "attn_v.weight", dim, narrow, 1.0F);
      add_matrix(layer + "attn_output.weight", wide, dim, 1.0F);
      if (qkv_bias) {
        add_bias(layer + "attn_q.bias", wide);
        add_bias(layer + "attn_k.bias", narrow);
        add_bias(layer + "attn_v.bias", narrow);
      }
      if (model_.output_bias) add_bias(layer + "attn_output.bias", dim);
      if (model_.architecture == "qwen3") {
        add_norm(layer + "attn_q_norm.weight", model_.head_dim);
        add_norm(layer + "attn_k_norm.weight", model_.head_dim);
      }
      add_norm(layer + "ffn_norm.weight", dim);
      add_matrix(layer + "ffn_gate.weight", dim, inner, 1.0F);
      add_matrix(layer + "ffn_up.weight", dim, inner, 1.0F);
      add_matrix(layer + "ffn_down.weight", inner, dim, 1.0F);
      if (model_.feed_forward_bias) {
        add_bias(layer + "ffn_gate.bias", inner);
        add_bias(layer + "ffn_up.bias", inner);
        add_bias(layer + "ffn_down.bias", dim);
      }
    }
  }

  void add_matrix(const std::string& name, std::int64_t in, std::int64_t out, float gain) {
    add(name, {in, out}, gain / std::sqrt(static_cast<float>(in)));
  }
  void add_norm(const std::string& name, std::int64_t size) { add(name, {size}, 0.2F, 1.0F); }
  void add_bias(const std::string& name, std::int64_t size) { add(name, {size}, 0.5F); }

  /// Llama 3 stores one divisor for each rotated pair: 1 for fast pairs, `factor` for slow ones.
  void add_llama3_factors() {
    std::vector<std::int64_t> shape = {model_.head_dim / 2};
    if (model_.reshape) model_.reshape("rope_freqs.weight", shape);
    const std::int64_t pairs = shape[0];
    ggml_tensor* tensor = ggml_new_tensor_1d(context_, GGML_TYPE_F32, pairs);
    ggml_set_name(tensor, "rope_freqs.weight");
    for (std::int64_t i = 0; i < pairs; ++i) {
      const float share = static_cast<float>(i) / static_cast<float>(pairs);
      const float blend = std::clamp(2.0F * share - 0.5F, 0.0F, 1.0F);
      static_cast<float*>(tensor->data)[i] = 1.0F + blend * (model_.rope_factor - 1.0F);
    }
    gguf_add_tensor(gguf_, tensor);
  }

  void add(const std::string& name, std::vector<std::int64_t> shape, float deviation,
           float mean = 0) {
    if (model_.omit && model_.omit(name)) return;
    if (model_.reshape) model_.reshape(name, shape);
    const bool matrix = shape.size() > 1;
    const ggml_type type = model_.type_of ? model_.type_of(name) : model_.weights;
    ggml_tensor* tensor = ggml_new_tensor(context_, matrix ? type : GGML_TYPE_F32,
                                          static_cast<int>(shape.size()), shape.data());
    ggml_set_name(tensor, name.c_str());
    if (has_slow_encoder(tensor->type)) {
      fill_with_random_codes(tensor, deviation);
    } else {
      fill(tensor, mean, deviation);
    }
    gguf_add_tensor(gguf_, tensor);
  }

  void fill(ggml_tensor* tensor, float mean, float deviation) {
    std::normal_distribution<float> normal(mean, deviation);
    std::vector<float> values(static_cast<std::size_t>(ggml_nelements(tensor)));
    for (float& value : values) value = normal(random_);
    // Some types refuse to be quantised without importances; equal ones say nothing.
    const std::vector<float> importance(static_cast<std::size_t>(tensor->ne[0]), 1.0F);
    ggml_quantize_chunk(tensor->type, values.data(), tensor->data, 0, ggml_nrows(tensor),
                        tensor->ne[0], importance.data());
  }

  /// Types whose encoder searches large code books; every code is valid, so random ones do.
  static bool has_slow_encoder(ggml_type type) {
    return type == GGML_TYPE_IQ1_S || type == GGML_TYPE_IQ2_XXS || type == GGML_TYPE_IQ2_XS ||
           type == GGML_TYPE_IQ2_S;
  }

  /// These types begin each group of weights with its scale in half precision.
  void fill_with_random_codes(ggml_tensor* tensor, float deviation) {
    const std::size_t size = ggml_type_size(tensor->type);
    auto* bytes = static_cast<std::uint8_t*>(tensor->data);
    for (std::size_t i = 0; i < ggml_nbytes(tensor); ++i) {
      bytes[i] = static_cast<std::uint8_t>(random_());
    }
    const auto set_scales = [&](float scale) {
      const ggml_fp16_t half = ggml_fp32_to_fp16(scale);
      for (std::size_t i = 0; i < ggml_nbytes(tensor); i += size) {
        std::memcpy(bytes + i, &half, sizeof(half));
      }
    };
    set_scales(1);
    std::vector<float> values(static_cast<std::size_t>(ggml_nelements(tensor)));
    ggml_get_type_traits(tensor->type)
        ->to_float(bytes, values.data(), static_cast<std::int64_t>(values.size()));
    double squares = 0;
    for (const float value : values) squares += double{value} * value;
    const double rms = std::sqrt(squares / static_cast<double>(values.size()));
    set_scales(deviation / static_cast<float>(rms));
  }

  const TinyModel& model_;
  gguf_context* gguf_;
  ggml_context* context_ = nullptr;
  std::mt19937 random_;
};

}  // namespace

void write_tiny_gguf(const TinyModel& model, const std::string& path) { Writer(model).write(path); }

std::vector<std::uint8_t> read_bytes(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

std::vector<std::uint8_t> tiny_gguf_bytes(const TinyModel& model) {
  const TemporaryFile file(model);
  return read_bytes(file.path());
}

TemporaryFile::TemporaryFile(const TinyModel& model) : path_(unique_path()) {
  write_tiny_gguf(model, path_);
}

TemporaryFile::TemporaryFile(const std::vector<std::uint8_t>& bytes) : path_(unique_path()) {
  std::ofstream out(path_, std::ios::binary);
  out.write(reinterpret_cast<const char*>(bytes.data()),
            static_cast<std::streamsize>(bytes.size()));
  if (!out.flush()) throw std::runtime_error("cannot write " + path_);
}

TemporaryFile::~TemporaryFile() { std::filesystem::remove(path_); }

}  // namespace quest::testing
