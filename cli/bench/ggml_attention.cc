// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "bench/ggml_attention.h"

#include <ggml-cpp.h>
#include <ggml-cpu.h>
#include <ggml.h>

#include <chrono>
#include <cmath>
#include <limits>
#include <string>

#include "bench/ggml_kv_type.h"
#include "quest/error.h"

namespace quest::cli {
namespace {

constexpr std::int64_t kPadding = 256;  // tokens

struct LayerTensors {
  ggml_tensor* q = nullptr;  // [head_dim, q_heads, batch]
  ggml_tensor* k = nullptr;  // [head_dim * kv_heads, tokens, batch]
  ggml_tensor* v = nullptr;  // flash: as k; else [tokens, head_dim * kv_heads, batch]
  ggml_tensor* out = nullptr;
};

// Rows of floats as the tensor's type, written from byte `offset` on.
void store(ggml_tensor* tensor, std::size_t offset, const float* values, std::int64_t count) {
  std::vector<std::byte> bytes(ggml_row_size(tensor->type, count));
  ggml_quantize_chunk(tensor->type, values, bytes.data(), 0, 1, count, nullptr);
  ggml_backend_tensor_set(tensor, bytes.data(), offset, bytes.size());
}

}  // namespace

struct GgmlAttention::State {
  State(const AttentionShape& the_shape, bool use_flash, int threads)
      : shape(the_shape),
        flash(use_flash),
        type(ggml_type_of(the_shape.kv)),
        tokens((the_shape.context + kPadding - 1) / kPadding * kPadding),
        width(std::int64_t{the_shape.head_dim} * the_shape.kv_heads),
        backend(ggml_backend_cpu_init()) {
    if (!backend) throw Error("ggml's CPU backend could not start");
    ggml_backend_cpu_set_n_threads(backend.get(), threads);
    make_inputs();
    fill();
    build();
  }

  void make_inputs();
  void fill();
  void fill_sequence(std::int32_t layer, std::int32_t sequence);
  void build();
  ggml_tensor* build_layer(ggml_context* context, const LayerTensors& layer) const;
  ggml_tensor* build_flash(ggml_context* context, ggml_tensor* q, ggml_tensor* k,
                           ggml_tensor* v) const;
  ggml_tensor* build_plain(ggml_context* context, ggml_tensor* q, ggml_tensor* k,
                           ggml_tensor* v) const;

  const AttentionShape shape;
  const bool flash;
  const ggml_type type;
  const std::int64_t tokens;  // of a sequence, padded
  const std::int64_t width;   // elements of all KV heads of a token
  ggml_backend_ptr backend;
  ggml_context_ptr inputs;
  ggml_context_ptr nodes;
  ggml_backend_buffer_ptr input_memory;
  ggml_gallocr_ptr node_memory;
  std::vector<LayerTensors> layers;
  ggml_tensor* mask = nullptr;  // [tokens, 1, 1, batch]
  ggml_cgraph* graph = nullptr;
};

void GgmlAttention::State::make_inputs() {
  const auto count = static_cast<std::size_t>(shape.layers);
  const ggml_init_params params = {(3 * count + 1) * ggml_tensor_overhead(), nullptr, true};
  inputs.reset(ggml_init(params));
  layers.resize(count);
  for (LayerTensors& layer : layers) {
    layer.q =
        ggml_new_tensor_3d(inputs.get(), GGML_TYPE_F32, shape.head_dim, shape.q_heads, shape.batch);
    layer.k = ggml_new_tensor_3d(inputs.get(), type, width, tokens, shape.batch);
    layer.v = flash ? ggml_new_tensor_3d(inputs.get(), type, width, tokens, shape.batch)
                    : ggml_new_tensor_3d(inputs.get(), type, tokens, width, shape.batch);
  }
  mask = ggml_new_tensor_4d(inputs.get(), flash ? GGML_TYPE_F16 : GGML_TYPE_F32, tokens, 1, 1,
                            shape.batch);
  input_memory.reset(ggml_backend_alloc_ctx_tensors(inputs.get(), backend.get()));
  if (!input_memory) throw Error("out of memory for llama.cpp's keys and values; try --peer none");
  ggml_backend_buffer_clear(input_memory.get(), 0);
}

void GgmlAttention::State::fill_sequence(std::int32_t layer, std::int32_t sequence) {
  const LayerTensors& to = layers[static_cast<std::size_t>(layer)];
  const std::int64_t d = shape.head_dim;
  const std::size_t head_bytes = ggml_row_size(type, d);
  std::vector<float> channel(static_cast<std::size_t>(shape.context));
  for (std::int32_t head = 0; head < shape.kv_heads; ++head) {
    const auto rows = [&](Part part) {
      return synthetic_rows(shape, part, layer, sequence, head, shape.context);
    };
    const auto store_by_token = [&](ggml_tensor* tensor, const std::vector<float>& values) {
      for (std::int64_t t = 0; t < shape.context; ++t) {
        store(tensor, tensor->nb[2] * sequence + tensor->nb[1] * t + head * head_bytes,
              values.data() + t * d, d);
      }
    };
    store_by_token(to.k, rows(Part::kKey));
    const std::vector<float> values = rows(Part::kValue);
    if (flash) {
      store_by_token(to.v, values);
      continue;
    }
    for (std::int64_t j = 0; j < d; ++j) {
      for (std::int64_t t = 0; t < shape.context; ++t) channel[t] = values[t * d + j];
      store(to.v, to.v->nb[2] * sequence + to.v->nb[1] * (head * d + j), channel.data(),
            shape.context);
    }
  }
  const std::vector<float> q =
      synthetic_rows(shape, Part::kQuery, layer, sequence, 0, shape.q_heads);
  ggml_backend_tensor_set(to.q, q.data(), to.q->nb[2] * sequence, q.size() * sizeof(float));
}

void GgmlAttention::State::fill() {
  for (std::int32_t layer = 0; layer < shape.layers; ++layer) {
    for (std::int32_t s = 0; s < shape.batch; ++s) fill_sequence(layer, s);
  }
  std::vector<float> row(static_cast<std::size_t>(tokens), 0.0F);
  for (std::int64_t t = shape.context; t < tokens; ++t) {
    row[t] = -std::numeric_limits<float>::infinity();
  }
  for (std::int32_t s = 0; s < shape.batch; ++s) store(mask, mask->nb[3] * s, row.data(), tokens);
}

void GgmlAttention::State::build() {
  constexpr std::size_t kNodesPerLayer = 16;
  const std::size_t count = kNodesPerLayer * layers.size();
  const ggml_init_params params = {
      count * ggml_tensor_overhead() + ggml_graph_overhead_custom(count, false), nullptr, true};
  nodes.reset(ggml_init(params));
  graph = ggml_new_graph_custom(nodes.get(), count, false);
  for (LayerTensors& layer : layers) {
    layer.out = build_layer(nodes.get(), layer);
    ggml_set_output(layer.out);
    ggml_build_forward_expand(graph, layer.out);
  }
  node_memory.reset(ggml_gallocr_new(ggml_backend_cpu_buffer_type()));
  if (!ggml_gallocr_alloc_graph(node_memory.get(), graph)) {
    throw Error("out of memory for llama.cpp's attention; try --peer none");
  }
}

ggml_tensor* GgmlAttention::State::build_layer(ggml_context* context,
                                               const LayerTensors& layer) const {
  const std::int64_t d = shape.head_dim;
  const std::int64_t heads = shape.kv_heads;
  ggml_tensor* const by_sequence = ggml_view_4d(context, layer.q, d, shape.q_heads, 1, shape.batch,
                                                layer.q->nb[1], layer.q->nb[2], layer.q->nb[2], 0);
  ggml_tensor* const q = ggml_permute(context, by_sequence, 0, 2, 1, 3);
  const auto by_token = [&](ggml_tensor* cache) {
    ggml_tensor* const view = ggml_view_4d(context, cache, d, heads, tokens, shape.batch,
                                           ggml_row_size(type, d), cache->nb[1], cache->nb[2], 0);
    return ggml_permute(context, view, 0, 2, 1, 3);
  };
  ggml_tensor* const k = by_token(layer.k);
  if (flash) return build_flash(context, q, k, by_token(layer.v));
  ggml_tensor* const v = ggml_view_4d(context, layer.v, tokens, heads, d, shape.batch,
                                      layer.v->nb[1] * d, layer.v->nb[1], layer.v->nb[2], 0);
  return build_plain(context, q, k, ggml_permute(context, v, 0, 2, 1, 3));
}

ggml_tensor* GgmlAttention::State::build_flash(ggml_context* context, ggml_tensor* q,
                                               ggml_tensor* k, ggml_tensor* v) const {
  // llama.cpp, too, halves a float cache anew in every step.
  if (type == GGML_TYPE_F32) {
    k = ggml_cast(context, k, GGML_TYPE_F16);
    v = ggml_cast(context, v, GGML_TYPE_F16);
  }
  const float scale = 1.0F / std::sqrt(static_cast<float>(shape.head_dim));
  ggml_tensor* const out = ggml_flash_attn_ext(context, q, k, v, mask, scale, 0, 0);
  ggml_prec_set_acc(out, GGML_PREC_F32);
  return out;
}

ggml_tensor* GgmlAttention::State::build_plain(ggml_context* context, ggml_tensor* q,
                                               ggml_tensor* k, ggml_tensor* v) const {
  const float scale = 1.0F / std::sqrt(static_cast<float>(shape.head_dim));
  ggml_tensor* logits = ggml_mul_mat(context, k, q);
  ggml_prec_set_acc(logits, GGML_PREC_F32);
  ggml_tensor* const weights = ggml_soft_max_ext(context, logits, mask, scale, 0);
  ggml_tensor* const sums = ggml_permute(context, ggml_mul_mat(context, v, weights), 0, 2, 1, 3);
  return ggml_cont_2d(context, sums, std::int64_t{shape.head_dim} * shape.q_heads, shape.batch);
}

bool GgmlAttention::available(KvType type, bool flash) {
  return flash || !ggml_is_quantized(ggml_type_of(type));
}

GgmlAttention::GgmlAttention(const AttentionShape& shape, bool flash, int threads)
    : flash_(flash), state_(std::make_unique<State>(shape, flash, threads)) {}

GgmlAttention::~GgmlAttention() = default;

double GgmlAttention::tolerance() const {
  return flash_ || ggml_is_quantized(state_->type) ? 0.1 : 0.02;
}

double GgmlAttention::pass() {
  const auto start = std::chrono::steady_clock::now();
  if (ggml_backend_graph_compute(state_->backend.get(), state_->graph) != GGML_STATUS_SUCCESS) {
    throw Error("ggml failed to compute attention");
  }
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

std::vector<float> GgmlAttention::output(std::int32_t layer) const {
  const ggml_tensor* const out = state_->layers[static_cast<std::size_t>(layer)].out;
  std::vector<float> values(static_cast<std::size_t>(ggml_nelements(out)));
  ggml_backend_tensor_get(out, values.data(), 0, values.size() * sizeof(float));
  return values;
}

}  // namespace quest::cli
