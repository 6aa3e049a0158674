// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "model/weights.h"

#include <ggml-alloc.h>
#include <ggml-cpu.h>

#include <algorithm>
#include <map>
#include <set>
#include <thread>

#include "model/weight_placement.h"
#include "quest/error.h"

namespace quest {

namespace {

// Takes tensors out of the file one by one, checks their shapes, and at the end that none is left
// over: a tensor that the graph does not use would mean a model that it does not understand.
class Loader {
 public:
  Loader(ModelWeights& model, const ModelOptions& options) : model_(model), options_(options) {
    if (options_.threads <= 0) {
      options_.threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
    }
    ggml_init_params params{};
    // Every tensor may exist as stored and re-encoded or repacked, and tied output once more.
    params.mem_size =
        ggml_tensor_overhead() * static_cast<std::size_t>(2 * model.file.num_tensors() + 4);
    params.no_alloc = true;
    model.tensors.reset(ggml_init(params));
    const MappedFile& mapping = model.file.mapping();
    model.buffers.emplace_back(ggml_backend_cpu_buffer_from_ptr(mapping.data(), mapping.size()));
    ggml_backend_buffer_set_usage(model.buffers[0].get(), GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
  }

  bool has(const std::string& name) const { return model_.file.tensor(name) != nullptr; }

  // A vector, in float32 as ggml's operators want it.
  ggml_tensor* vector(const std::string& name, std::int64_t size) {
    ggml_tensor* tensor = mapped(name, size, 1);
    if (tensor->type != GGML_TYPE_F32) {
      throw UnsupportedModel(model_.file.path() + ": tensor " + name + " has type " +
                             ggml_type_name(tensor->type) + " where f32 is expected");
    }
    return tensor;
  }
  ggml_tensor* optional_vector(const std::string& name, std::int64_t size) {
    return has(name) ? vector(name, size) : nullptr;
  }

  // A table whose rows are looked up.
  ggml_tensor* table(const std::string& name, std::int64_t width, std::int64_t rows) {
    return mapped(name, width, rows);
  }

  // A matrix that is multiplied with. `reencode` only pays where many rows meet it.
  Matrix matrix(const std::string& name, std::int64_t width, std::int64_t rows, bool may_reencode) {
    ggml_tensor* stored = mapped(name, width, rows);
    note_type(stored->type, info_stored_);
    Matrix result;
    result.one_row = placed(stored);
    result.many_rows = result.one_row;
    const ggml_type fast = prefill_type(stored->type);
    if (options_.reencode && may_reencode && fast != stored->type &&
        result.one_row->buffer == model_.buffers[0].get()) {
      result.many_rows = reencoded(stored, fast);
    }
    note_type(result.many_rows->type, info_compute_);
    return result;
  }

  void finish() {
    for (std::int64_t i = 0; i < model_.file.num_tensors(); ++i) {
      const std::string name = model_.file.tensor_name(i);
      if (!used_.contains(name)) {
        throw UnsupportedModel(model_.file.path() + ": tensor " + name + " is not part of a " +
                               model_.hyper.architecture_name + " model that this engine runs");
      }
    }
    model_.info.weight_types = join(info_stored_);
    model_.info.compute_types = join(info_compute_);
    model_.info.weight_bytes = bytes_;
    model_.info.parameters = parameters_;
  }

 private:
  static void note_type(ggml_type type, std::map<std::string, int>& seen) {
    ++seen[ggml_type_name(type)];
  }
  static std::string join(const std::map<std::string, int>& names) {
    std::string text;
    for (const auto& [name, count] : names) text += (text.empty() ? "" : ", ") + name;
    return text;
  }

  ggml_tensor* describe(const ggml_tensor* source, ggml_type type) {
    return ggml_set_name(
        ggml_new_tensor_2d(model_.tensors.get(), type, source->ne[0], source->ne[1]), source->name);
  }

  // The tensor as it lies in the file.
  ggml_tensor* mapped(const std::string& name, std::int64_t width, std::int64_t rows) {
    const ggml_tensor* source = model_.file.tensor(name);
    if (source == nullptr) {
      throw FileError(model_.file.path() + ": tensor " + name + " is missing");
    }
    if (source->ne[0] != width || source->ne[1] != rows || source->ne[2] != 1 ||
        source->ne[3] != 1) {
      throw FileError(model_.file.path() + ": tensor " + name + " has shape [" +
                      std::to_string(source->ne[0]) + ", " + std::to_string(source->ne[1]) +
                      "] where [" + std::to_string(width) + ", " + std::to_string(rows) +
                      "] is expected");
    }
    ggml_tensor* tensor = describe(source, source->type);
    ggml_backend_tensor_alloc(model_.buffers[0].get(), tensor, model_.file.tensor_data(name));
    if (used_.insert(name).second) {
      bytes_ += static_cast<std::int64_t>(ggml_nbytes(tensor));
      parameters_ += ggml_nelements(tensor);
    }
    return tensor;
  }

  ggml_tensor* allocate(ggml_tensor* tensor, ggml_backend_buffer_type_t type, const void* data) {
    const std::size_t size = ggml_backend_buft_get_alloc_size(type, tensor);
    ggml_backend_buffer_ptr buffer(ggml_backend_buft_alloc_buffer(type, size));
    if (!buffer) {
      throw Error("out of memory for tensor " + std::string(tensor->name) + ": " +
                  std::to_string(size) + " bytes");
    }
    ggml_backend_buffer_set_usage(buffer.get(), GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
    ggml_backend_tensor_alloc(buffer.get(), tensor, ggml_backend_buffer_get_base(buffer.get()));
    ggml_backend_tensor_set(tensor, data, 0, ggml_nbytes(tensor));
    model_.buffers.push_back(std::move(buffer));
    return tensor;
  }

  // The matrix in ggml's repacked layout where there is one for its type, else as mapped.
  ggml_tensor* placed(ggml_tensor* stored) {
    ggml_backend_buffer_type_t type = matrix_buffer_type(stored);
    if (type == nullptr) return stored;
    return allocate(describe(stored, stored->type), type, stored->data);
  }

  ggml_tensor* reencoded(const ggml_tensor* stored, ggml_type type) {
    const auto data =
        reencode(stored, static_cast<const std::byte*>(stored->data), type, options_.threads);
    ggml_tensor* tensor = describe(stored, type);
    ggml_backend_buffer_type_t buffer_type = matrix_buffer_type(tensor);
    if (buffer_type == nullptr) buffer_type = ggml_backend_cpu_buffer_type();
    bytes_ += static_cast<std::int64_t>(data.size());
    return allocate(tensor, buffer_type, data.data());
  }

  ModelWeights& model_;
  ModelOptions options_;
  std::set<std::string> used_;
  std::map<std::string, int> info_stored_;
  std::map<std::string, int> info_compute_;
  std::int64_t bytes_ = 0;
  std::int64_t parameters_ = 0;
};

LayerWeights load_layer(Loader& load, const Hyperparameters& h, std::int64_t index) {
  const std::string prefix = "blk." + std::to_string(index) + ".";
  const std::int64_t q_width = h.num_q_heads * h.head_dim;
  const std::int64_t kv_width = h.num_kv_heads * h.head_dim;
  LayerWeights layer;
  layer.attn_norm = load.vector(prefix + "attn_norm.weight", h.embedding_dim);
  layer.q = load.matrix(prefix + "attn_q.weight", h.embedding_dim, q_width, true);
  layer.k = load.matrix(prefix + "attn_k.weight", h.embedding_dim, kv_width, true);
  layer.v = load.matrix(prefix + "attn_v.weight", h.embedding_dim, kv_width, true);
  layer.out = load.matrix(prefix + "attn_output.weight", q_width, h.embedding_dim, true);
  layer.q_bias = load.optional_vector(prefix + "attn_q.bias", q_width);
  layer.k_bias = load.optional_vector(prefix + "attn_k.bias", kv_width);
  layer.v_bias = load.optional_vector(prefix + "attn_v.bias", kv_width);
  layer.out_bias = load.optional_vector(prefix + "attn_output.bias", h.embedding_dim);
  if (h.architecture == Architecture::kQwen3) {
    layer.q_norm = load.vector(prefix + "attn_q_norm.weight", h.head_dim);
    layer.k_norm = load.vector(prefix + "attn_k_norm.weight", h.head_dim);
  }
  layer.ffn_norm = load.vector(prefix + "ffn_norm.weight", h.embedding_dim);
  layer.gate = load.matrix(prefix + "ffn_gate.weight", h.embedding_dim, h.feed_forward_dim, true);
  layer.up = load.matrix(prefix + "ffn_up.weight", h.embedding_dim, h.feed_forward_dim, true);
  layer.down = load.matrix(prefix + "ffn_down.weight", h.feed_forward_dim, h.embedding_dim, true);
  layer.gate_bias = load.optional_vector(prefix + "ffn_gate.bias", h.feed_forward_dim);
  layer.up_bias = load.optional_vector(prefix + "ffn_up.bias", h.feed_forward_dim);
  layer.down_bias = load.optional_vector(prefix + "ffn_down.bias", h.embedding_dim);
  return layer;
}

void fill_info(ModelInfo& info, const GgufFile& file, const Hyperparameters& h) {
  info.path = file.path();
  info.name = file.text("general.name").value_or("");
  info.architecture = h.architecture_name;
  info.rope_scaling = h.rope.scaling;
  info.num_layers = static_cast<std::int32_t>(h.num_layers);
  info.num_q_heads = static_cast<std::int32_t>(h.num_q_heads);
  info.num_kv_heads = static_cast<std::int32_t>(h.num_kv_heads);
  info.head_dim = static_cast<std::int32_t>(h.head_dim);
  info.embedding_dim = static_cast<std::int32_t>(h.embedding_dim);
  info.feed_forward_dim = static_cast<std::int32_t>(h.feed_forward_dim);
  info.vocabulary = static_cast<std::int32_t>(h.vocabulary);
  info.context = h.context;
}

}  // namespace

ModelWeights::ModelWeights(const std::string& path, const ModelOptions& options)
    : file(path), hyper(read_hyperparameters(file)) {
  Loader load(*this, options);
  token_embedding = load.table("token_embd.weight", hyper.embedding_dim, hyper.vocabulary);
  output_norm = load.vector("output_norm.weight", hyper.embedding_dim);
  // Only rows that are sampled from meet the output matrix, so it stays as stored.
  output = load.matrix(load.has("output.weight") ? "output.weight" : "token_embd.weight",
                       hyper.embedding_dim, hyper.vocabulary, false);
  output_bias = load.optional_vector("output.bias", hyper.vocabulary);
  // Llama-3 files carry one factor a rotated pair.
  rope_factors = load.optional_vector("rope_freqs.weight", hyper.head_dim / 2);
  if (rope_factors != nullptr && hyper.rope.scaling == "none") hyper.rope.scaling = "llama3";
  for (std::int64_t i = 0; i < hyper.num_layers; ++i) {
    layers.push_back(load_layer(load, hyper, i));
  }
  load.finish();
  fill_info(info, file, hyper);
}

}  // namespace quest
