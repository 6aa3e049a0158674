// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ggml-cpp.h>

#include <string>
#include <vector>

#include "model/gguf_file.h"
#include "model/hyperparameters.h"
#include "quest/model.h"

namespace quest {

/// One weight matrix in up to two encodings: as stored, which reads the fewest bytes for a single
/// row, and re-encoded, which multiplies many rows faster. Often the same tensor.
struct Matrix {
  ggml_tensor* one_row = nullptr;
  ggml_tensor* many_rows = nullptr;
  ggml_tensor* for_rows(std::int64_t rows) const { return rows == 1 ? one_row : many_rows; }
};

/// Matrices that multiply the same input. Where they agree in type and are copied into a repacked
/// layout anyway, one matrix holds the rows of all, in order, and one multiplication does for all.
struct ProjectionGroup {
  Matrix merged;                     ///< empty if the parts are separate
  std::vector<Matrix> separate;      ///< empty if they are merged
  std::vector<ggml_tensor*> biases;  ///< one a part, or one for all (merged); null where none
  bool is_merged() const { return merged.one_row != nullptr; }
};

/// Null where the architecture or the file has no such tensor.
struct LayerWeights {
  ggml_tensor* attn_norm = nullptr;
  ProjectionGroup qkv;  ///< rows of Q, K, V
  Matrix out;
  ggml_tensor* out_bias = nullptr;
  ggml_tensor* q_norm = nullptr;
  ggml_tensor* k_norm = nullptr;
  ggml_tensor* ffn_norm = nullptr;
  ProjectionGroup gate_up;  ///< rows of gate, up
  Matrix down;
  ggml_tensor* down_bias = nullptr;
};

/// The weights of one model, memory-mapped where they are used as stored.
struct ModelWeights {
  ModelWeights(const std::string& path, const ModelOptions& options);

  GgufFile file;
  Hyperparameters hyper;
  ModelInfo info;
  ggml_tensor* token_embedding = nullptr;
  ggml_tensor* output_norm = nullptr;
  ggml_tensor* output_bias = nullptr;
  ggml_tensor* rope_factors = nullptr;
  Matrix output;
  std::vector<LayerWeights> layers;

  ggml_context_ptr tensors;                      ///< descriptions of all tensors above
  std::vector<ggml_backend_buffer_ptr> buffers;  ///< their memory; the first is the mapping
};

}  // namespace quest
