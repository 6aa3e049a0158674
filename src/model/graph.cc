// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "model/graph.h"

#include <ggml-alloc.h>
#include <ggml-cpu.h>

#include <array>
#include <cmath>

#include "model/weights.h"
#include "quest/error.h"

namespace quest {

namespace {

// Nodes of one layer, with room to spare.
constexpr std::int64_t kNodesPerLayer = 48;

ggml_tensor* add_bias(ggml_context* context, ggml_tensor* x, ggml_tensor* bias) {
  return bias == nullptr ? x : ggml_add(context, x, bias);
}

ggml_tensor* normalise(ggml_context* context, ggml_tensor* x, ggml_tensor* weight, float epsilon) {
  return ggml_mul(context, ggml_rms_norm(context, x, epsilon), weight);
}

// A group's products, [width, rows]: one for all parts where they are merged, else one a part.
std::vector<ggml_tensor*> project(ggml_context* context, const ProjectionGroup& group,
                                  ggml_tensor* input) {
  const std::int64_t rows = input->ne[1];
  const auto product = [&](const Matrix& matrix, ggml_tensor* bias) {
    return add_bias(context, ggml_mul_mat(context, matrix.for_rows(rows), input), bias);
  };
  if (group.is_merged()) return {product(group.merged, group.biases.front())};
  std::vector<ggml_tensor*> products;
  for (std::size_t i = 0; i < group.separate.size(); ++i) {
    products.push_back(product(group.separate[i], group.biases[i]));
  }
  return products;
}

}  // namespace

void ForwardGraph::run_attention(ggml_tensor* out, int thread, int threads, void* seam_pointer) {
  const auto* seam = static_cast<const LayerSeam*>(seam_pointer);
  const auto floats = [](std::size_t bytes) {
    return static_cast<std::int64_t>(bytes / sizeof(float));
  };
  const ggml_tensor* q = out->src[0];
  const ggml_tensor* k = out->src[1];
  const ggml_tensor* v = out->src[2];
  LayerInput input;
  input.layer = seam->layer;
  input.num_q_heads = seam->num_q_heads;
  input.scale = seam->scale;
  input.q = static_cast<const float*>(q->data);
  input.k = static_cast<const float*>(k->data);
  input.v = static_cast<const float*>(v->data);
  input.q_stride = floats(q->nb[2]);
  input.k_stride = floats(k->nb[2]);
  input.v_stride = floats(v->nb[2]);
  input.out = static_cast<float*>(out->data);
  input.out_stride = floats(out->nb[1]);
  (*seam->attention)(input, thread, threads);
}

ggml_tensor* ForwardGraph::rotate(const ModelWeights& weights, ggml_tensor* heads) {
  const Hyperparameters& h = weights.hyper;
  const Rope& rope = h.rope;
  return ggml_rope_ext(context_.get(), heads, positions_, weights.rope_factors,
                       static_cast<int>(h.head_dim),
                       rope.neox ? GGML_ROPE_TYPE_NEOX : GGML_ROPE_TYPE_NORMAL,
                       static_cast<int>(rope.original_context), rope.freq_base, rope.freq_scale,
                       rope.ext_factor, rope.attn_factor, rope.beta_fast, rope.beta_slow);
}

ggml_tensor* ForwardGraph::heads_of(ggml_tensor* x, std::int64_t head_dim, std::int64_t first,
                                    std::int64_t count) {
  const std::size_t head_bytes = static_cast<std::size_t>(head_dim) * sizeof(float);
  return ggml_view_3d(context_.get(), x, head_dim, count, rows_, head_bytes, x->nb[1],
                      static_cast<std::size_t>(first) * head_bytes);
}

std::array<ggml_tensor*, 3> ForwardGraph::project_heads(const ModelWeights& weights,
                                                        const LayerWeights& layer,
                                                        ggml_tensor* input) {
  const Hyperparameters& h = weights.hyper;
  const std::int64_t q_heads = h.num_q_heads;
  const std::int64_t kv_heads = h.num_kv_heads;
  const std::vector<ggml_tensor*> products = project(context_.get(), layer.qkv, input);
  const bool merged = layer.qkv.is_merged();
  ggml_tensor* v = merged ? heads_of(products[0], h.head_dim, q_heads + kv_heads, kv_heads)
                          : heads_of(products[2], h.head_dim, 0, kv_heads);
  if (merged && layer.q_norm == nullptr) {
    // Q and K lie side by side: one rotation for both.
    ggml_tensor* both = rotate(weights, heads_of(products[0], h.head_dim, 0, q_heads + kv_heads));
    both = ggml_reshape_2d(context_.get(), both, h.head_dim * (q_heads + kv_heads), rows_);
    return {heads_of(both, h.head_dim, 0, q_heads), heads_of(both, h.head_dim, q_heads, kv_heads),
            v};
  }
  ggml_tensor* q = heads_of(products[0], h.head_dim, 0, q_heads);
  ggml_tensor* k = merged ? heads_of(products[0], h.head_dim, q_heads, kv_heads)
                          : heads_of(products[1], h.head_dim, 0, kv_heads);
  if (layer.q_norm != nullptr) {
    q = normalise(context_.get(), q, layer.q_norm, h.rms_epsilon);
    k = normalise(context_.get(), k, layer.k_norm, h.rms_epsilon);
  }
  return {rotate(weights, q), rotate(weights, k), v};
}

ggml_tensor* ForwardGraph::build_attention(const ModelWeights& weights, std::int64_t index,
                                           ggml_tensor* input) {
  const Hyperparameters& h = weights.hyper;
  const auto layer = static_cast<std::size_t>(index);
  std::array<ggml_tensor*, 3> sources = project_heads(weights, weights.layers[layer], input);
  return ggml_custom_4d(context_.get(), GGML_TYPE_F32, h.head_dim * h.num_q_heads, rows_, 1, 1,
                        sources.data(), static_cast<int>(sources.size()), run_attention,
                        GGML_N_TASKS_MAX, &seams_[layer]);
}

ggml_tensor* ForwardGraph::build_feed_forward(const ModelWeights& weights, std::int64_t index,
                                              ggml_tensor* input) {
  ggml_context* context = context_.get();
  const LayerWeights& layer = weights.layers[static_cast<std::size_t>(index)];
  ggml_tensor* x = normalise(context, input, layer.ffn_norm, weights.hyper.rms_epsilon);
  const std::vector<ggml_tensor*> products = project(context, layer.gate_up, x);
  ggml_tensor* hidden = layer.gate_up.is_merged()
                            ? ggml_swiglu(context, products[0])
                            : ggml_swiglu_split(context, products[0], products[1]);
  return add_bias(context, ggml_mul_mat(context, layer.down.for_rows(input->ne[1]), hidden),
                  layer.down_bias);
}

ForwardGraph::ForwardGraph(const ModelWeights& weights, std::int64_t rows, std::int64_t outputs,
                           const AttentionCall& attention)
    : rows_(rows) {
  const Hyperparameters& h = weights.hyper;
  const auto num_nodes = static_cast<std::size_t>(h.num_layers * kNodesPerLayer + 64);
  ggml_init_params params{};
  params.mem_size =
      ggml_tensor_overhead() * num_nodes + ggml_graph_overhead_custom(num_nodes, false);
  params.no_alloc = true;
  context_.reset(ggml_init(params));
  ggml_context* context = context_.get();
  graph_ = ggml_new_graph_custom(context, num_nodes, false);

  tokens_ = ggml_new_tensor_1d(context, GGML_TYPE_I32, rows);
  positions_ = ggml_new_tensor_1d(context, GGML_TYPE_I32, rows);
  output_rows_ = ggml_new_tensor_1d(context, GGML_TYPE_I32, outputs);
  for (ggml_tensor* input : {tokens_, positions_, output_rows_}) ggml_set_input(input);

  const float scale = 1.0F / std::sqrt(static_cast<float>(h.head_dim));
  for (std::int64_t i = 0; i < h.num_layers; ++i) {
    seams_.push_back({&attention, static_cast<std::int32_t>(i),
                      static_cast<std::int32_t>(h.num_q_heads), scale});
  }
  ggml_tensor* x = ggml_get_rows(context, weights.token_embedding, tokens_);
  for (std::int64_t i = 0; i < h.num_layers; ++i) {
    const LayerWeights& layer = weights.layers[static_cast<std::size_t>(i)];
    ggml_tensor* heads =
        build_attention(weights, i, normalise(context, x, layer.attn_norm, h.rms_epsilon));
    if (i == h.num_layers - 1 && outputs < rows) {
      // After the last attention only the rows whose logits are wanted matter.
      heads = ggml_get_rows(context, heads, output_rows_);
      x = ggml_get_rows(context, x, output_rows_);
    }
    ggml_tensor* mixed = ggml_mul_mat(context, layer.out.for_rows(heads->ne[1]), heads);
    x = ggml_add(context, add_bias(context, mixed, layer.out_bias), x);
    x = ggml_add(context, build_feed_forward(weights, i, x), x);
  }
  x = normalise(context, x, weights.output_norm, h.rms_epsilon);
  logits_ = add_bias(context, ggml_mul_mat(context, weights.output.for_rows(outputs), x),
                     weights.output_bias);
  ggml_set_output(logits_);
  ggml_build_forward_expand(graph_, logits_);

  allocator_.reset(ggml_gallocr_new(ggml_backend_cpu_buffer_type()));
  if (!ggml_gallocr_alloc_graph(allocator_.get(), graph_)) {
    throw Error("out of memory for the activations of " + std::to_string(rows) + " rows");
  }
}

const float* ForwardGraph::run(ggml_backend_t backend, const std::int32_t* tokens,
                               const std::int32_t* positions, const std::int32_t* output_rows) {
  ggml_backend_tensor_set(tokens_, tokens, 0, ggml_nbytes(tokens_));
  ggml_backend_tensor_set(positions_, positions, 0, ggml_nbytes(positions_));
  if (output_rows_->buffer != nullptr) {
    ggml_backend_tensor_set(output_rows_, output_rows, 0, ggml_nbytes(output_rows_));
  }
  if (ggml_backend_graph_compute(backend, graph_) != GGML_STATUS_SUCCESS) {
    throw Error("ggml failed to compute a step of " + std::to_string(rows_) + " rows");
  }
  return static_cast<const float*>(logits_->data);
}

}  // namespace quest
