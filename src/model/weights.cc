// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "model/weights.h"

#include <ggml-alloc.h>
#include <ggml-cpu.h>

#include <algorithm>
#include <map>
#include <set>
#include <thread>

#include "model/weight_copies.h"
#include "model/weight_placement.h"
#include "quest/error.h"

namespace quest {

namespace {

/// A matrix in the file, by its name without ".weight", and the rows that it should have.
struct Part {
  std::string name;
  std::int64_t rows;
};

// Takes tensors out of the file one by one, checks their shapes, and at the end that none is left
// over: a tensor that the graph does not use would mean a model that it does not understand.
class Loader {
 public:
  Loader(ModelWeights& model, const ModelOptions& options) : model_(model), options_(options) {
    if (options_.threads <= 0) {
      options_.threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
    }
    ggml_init_params params{};
    // Every tensor may exist as stored and in two more forms, and tied output once more.
    params.mem_size =
        ggml_tensor_overhead() * static_cast<std::size_t>(3 * model.file.num_tensors() + 8);
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
    keep(tensor);
    return tensor;
  }
  ggml_tensor* optional_vector(const std::string& name, std::int64_t size) {
    return has(name) ? vector(name, size) : nullptr;
  }

  // A table whose rows are looked up.
  ggml_tensor* table(const std::string& name, std::int64_t width, std::int64_t rows) {
    ggml_tensor* tensor = mapped(name, width, rows);
    keep(tensor);
    return tensor;
  }

  // A matrix that is multiplied with. `reencode` only pays where many rows meet it.
  Matrix matrix(const std::string& name, std::int64_t width, std::int64_t rows, bool may_reencode) {
    return placed(stored(name, width, rows), may_reencode);
  }

  // Matrices that multiply the same input, and their optional biases.
  ProjectionGroup projections(const std::vector<Part>& parts, std::int64_t width) {
    ProjectionGroup group;
    std::vector<ggml_tensor*> matrices;
    for (const Part& part : parts) {
      matrices.push_back(stored(part.name + ".weight", width, part.rows));
      group.biases.push_back(optional_vector(part.name + ".bias", part.rows));
    }
    if (options_.merge && can_merge(matrices, group.biases)) {
      group.merged.one_row = merged(matrices);
      group.merged.many_rows = group.merged.one_row;
      note_type(group.merged.many_rows->type, info_compute_);
      if (group.biases.front() != nullptr) group.biases = {joined_vector(group.biases)};
    } else {
      for (ggml_tensor* tensor : matrices) group.separate.push_back(placed(tensor, true));
    }
    return group;
  }

  void finish() {
    for (std::int64_t i = 0; i < model_.file.num_tensors(); ++i) {
      const std::string name = model_.file.tensor_name(i);
      if (!used_.contains(name)) {
        throw UnsupportedModel(model_.file.path() + ": tensor " + name + " is not part of a " +
                               model_.hyper.architecture_name + " model that this engine runs");
      }
    }
    const std::int64_t copied = copies_.place(model_.buffers);
    // What was copied is not read again; the rest comes back from the page cache when it is.
    if (copied > 0) model_.file.mapping().forget_pages();
    model_.info.weight_types = join(info_stored_);
    model_.info.compute_types = join(info_compute_);
    model_.info.weight_bytes = bytes_ + copied;
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

  ggml_tensor* describe(const ggml_tensor* source, ggml_type type, std::int64_t rows) {
    return ggml_set_name(ggml_new_tensor_2d(model_.tensors.get(), type, source->ne[0], rows),
                         source->name);
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
    ggml_tensor* tensor = describe(source, source->type, rows);
    ggml_backend_tensor_alloc(model_.buffers[0].get(), tensor, model_.file.tensor_data(name));
    if (used_.insert(name).second) parameters_ += ggml_nelements(tensor);
    return tensor;
  }

  // The tensor is used as it lies in the file.
  void keep(const ggml_tensor* tensor) {
    if (kept_.insert(tensor->name).second) bytes_ += static_cast<std::int64_t>(ggml_nbytes(tensor));
  }

  ggml_backend_buffer_type_t special_type(const ggml_tensor* matrix) const {
    return options_.repack ? matrix_buffer_type(matrix) : nullptr;
  }

  ggml_tensor* stored(const std::string& name, std::int64_t width, std::int64_t rows) {
    ggml_tensor* tensor = mapped(name, width, rows);
    note_type(tensor->type, info_stored_);
    return tensor;
  }

  // The matrix in ggml's repacked layout where there is one for its type, else as mapped and, for
  // many rows, perhaps re-encoded.
  Matrix placed(ggml_tensor* matrix, bool may_reencode) {
    Matrix result;
    const ggml_type fast = prefill_type(matrix->type);
    if (ggml_backend_buffer_type_t type = special_type(matrix)) {
      ggml_tensor* copy = describe(matrix, matrix->type, matrix->ne[1]);
      result.one_row = copies_.add(copy, type, [matrix] { return joined({matrix}); });
      result.many_rows = result.one_row;
    } else {
      keep(matrix);
      result.one_row = matrix;
      const bool reencode = options_.reencode && may_reencode && fast != matrix->type;
      result.many_rows = reencode ? reencoded(matrix, fast) : matrix;
    }
    note_type(result.many_rows->type, info_compute_);
    return result;
  }

  // Only matrices that are copied anyway: a copy of its own for the sake of fewer multiplications
  // would cost memory that mapped weights share with the page cache. Biases: all or none.
  bool can_merge(const std::vector<ggml_tensor*>& matrices,
                 const std::vector<ggml_tensor*>& biases) const {
    const ggml_type type = matrices.front()->type;
    const bool biased = biases.front() != nullptr;
    ggml_backend_buffer_type_t layout = special_type(matrices.front());
    const auto alike = [&](const ggml_tensor* matrix) {
      return matrix->type == type && special_type(matrix) == layout;
    };
    return layout != nullptr && std::all_of(matrices.begin(), matrices.end(), alike) &&
           std::all_of(biases.begin(), biases.end(),
                       [&](const ggml_tensor* bias) { return (bias != nullptr) == biased; });
  }

  // One matrix with the rows of all, in the layout that suits each of them.
  ggml_tensor* merged(const std::vector<ggml_tensor*>& matrices) {
    std::int64_t rows = 0;
    for (const ggml_tensor* matrix : matrices) rows += matrix->ne[1];
    const ggml_tensor* first = matrices.front();
    return copies_.add(describe(first, first->type, rows), special_type(first),
                       [matrices] { return joined(matrices); });
  }

  ggml_tensor* joined_vector(const std::vector<ggml_tensor*>& parts) {
    std::int64_t size = 0;
    for (const ggml_tensor* part : parts) size += part->ne[0];
    ggml_tensor* tensor = ggml_new_tensor_1d(model_.tensors.get(), GGML_TYPE_F32, size);
    return copies_.add(ggml_set_name(tensor, parts.front()->name), ggml_backend_cpu_buffer_type(),
                       [parts] { return joined(parts); });
  }

  static std::vector<std::byte> joined(const std::vector<ggml_tensor*>& parts) {
    std::vector<std::byte> bytes;
    for (const ggml_tensor* part : parts) {
      const auto* begin = static_cast<const std::byte*>(part->data);
      bytes.insert(bytes.end(), begin, begin + ggml_nbytes(part));
    }
    return bytes;
  }

  ggml_tensor* reencoded(const ggml_tensor* source, ggml_type type) {
    ggml_tensor* tensor = describe(source, type, source->ne[1]);
    ggml_backend_buffer_type_t buffer_type = special_type(tensor);
    if (buffer_type == nullptr) buffer_type = ggml_backend_cpu_buffer_type();
    return copies_.add(tensor, buffer_type, [source, type, threads = options_.threads] {
      return reencode(source, static_cast<const std::byte*>(source->data), type, threads);
    });
  }

  ModelWeights& model_;
  ModelOptions options_;
  WeightCopies copies_;
  std::set<std::string> used_;
  std::set<std::string> kept_;
  std::map<std::string, int> info_stored_;
  std::map<std::string, int> info_compute_;
  std::int64_t bytes_ = 0;  // used as they lie in the file
  std::int64_t parameters_ = 0;
};

LayerWeights load_layer(Loader& load, const Hyperparameters& h, std::int64_t index) {
  const std::string prefix = "blk." + std::to_string(index) + ".";
  const std::int64_t q_width = h.num_q_heads * h.head_dim;
  const std::int64_t kv_width = h.num_kv_heads * h.head_dim;
  LayerWeights layer;
  layer.attn_norm = load.vector(prefix + "attn_norm.weight", h.embedding_dim);
  layer.qkv = load.projections(
      {{prefix + "attn_q", q_width}, {prefix + "attn_k", kv_width}, {prefix + "attn_v", kv_width}},
      h.embedding_dim);
  layer.out = load.matrix(prefix + "attn_output.weight", q_width, h.embedding_dim, true);
  layer.out_bias = load.optional_vector(prefix + "attn_output.bias", h.embedding_dim);
  if (h.architecture == Architecture::kQwen3) {
    layer.q_norm = load.vector(prefix + "attn_q_norm.weight", h.head_dim);
    layer.k_norm = load.vector(prefix + "attn_k_norm.weight", h.head_dim);
  }
  layer.ffn_norm = load.vector(prefix + "ffn_norm.weight", h.embedding_dim);
  layer.gate_up = load.projections(
      {{prefix + "ffn_gate", h.feed_forward_dim}, {prefix + "ffn_up", h.feed_forward_dim}},
      h.embedding_dim);
  layer.down = load.matrix(prefix + "ffn_down.weight", h.feed_forward_dim, h.embedding_dim, true);
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
