// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ggml-cpp.h>

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "quest/attention.h"

namespace quest {

struct LayerWeights;
struct ModelWeights;

/// The seam between the model's graph and attention: called by every thread of ggml's team at each
/// layer, with `threads` members.
using AttentionCall = std::function<void(const LayerInput& input, int thread, int threads)>;

/// The model's forward pass for a fixed number of rows and outputs, as a ggml graph that is built
/// once and run many times. Attention is one custom operator a layer, so the graph knows nothing of
/// caches, lengths or policies.
class ForwardGraph {
 public:
  /// `attention` must outlive the graph.
  ForwardGraph(const ModelWeights& weights, std::int64_t rows, std::int64_t outputs,
               const AttentionCall& attention);

  /// Runs on `backend`. tokens, positions: [rows]; output_rows: [outputs] rows whose logits are
  /// wanted. Returns logits [outputs, vocabulary], valid until the next run. Throws Error if ggml
  /// fails.
  const float* run(ggml_backend_t backend, const std::int32_t* tokens,
                   const std::int32_t* positions, const std::int32_t* output_rows);

  ggml_cgraph* graph() const { return graph_; }

 private:
  struct LayerSeam {
    const AttentionCall* attention;
    std::int32_t layer;
    std::int32_t num_q_heads;
    float scale;
  };
  static void run_attention(ggml_tensor* out, int thread, int threads, void* seam);

  /// Q, K, V of a layer as attention takes them: [head_dim, heads, rows], Q and K rotated.
  std::array<ggml_tensor*, 3> project_heads(const ModelWeights& weights, const LayerWeights& layer,
                                            ggml_tensor* input);
  /// `count` heads from `first` on of each row of x [width, rows].
  ggml_tensor* heads_of(ggml_tensor* x, std::int64_t head_dim, std::int64_t first,
                        std::int64_t count);
  ggml_tensor* build_attention(const ModelWeights& weights, std::int64_t layer, ggml_tensor* input);
  ggml_tensor* build_feed_forward(const ModelWeights& weights, std::int64_t layer,
                                  ggml_tensor* input);
  ggml_tensor* rotate(const ModelWeights& weights, ggml_tensor* heads);

  std::int64_t rows_;
  std::vector<LayerSeam> seams_;
  ggml_context_ptr context_;
  ggml_gallocr_ptr allocator_;
  ggml_cgraph* graph_ = nullptr;
  ggml_tensor* tokens_ = nullptr;
  ggml_tensor* positions_ = nullptr;
  ggml_tensor* output_rows_ = nullptr;
  ggml_tensor* logits_ = nullptr;
};

}  // namespace quest
