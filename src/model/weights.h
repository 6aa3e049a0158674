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

/// Null where the architecture or the file has no such tensor.
struct LayerWeights {
  ggml_tensor* attn_norm = nullptr;
  Matrix q, k, v, out;
  ggml_tensor* q_bias = nullptr;
  ggml_tensor* k_bias = nullptr;
  ggml_tensor* v_bias = nullptr;
  ggml_tensor* out_bias = nullptr;
  ggml_tensor* q_norm = nullptr;
  ggml_tensor* k_norm = nullptr;
  ggml_tensor* ffn_norm = nullptr;
  Matrix gate, up, down;
  ggml_tensor* gate_bias = nullptr;
  ggml_tensor* up_bias = nullptr;
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
