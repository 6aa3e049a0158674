// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "quest/tokenizer.h"

namespace quest {

/// What a GGUF file says about its model, in the field's terms.
struct ModelInfo {
  std::string path;
  std::string name;           ///< general.name, may be empty
  std::string architecture;   ///< "llama", "qwen2", "qwen3", …
  std::string rope_scaling;   ///< "none", "linear", "yarn", "llama3"
  std::string weight_types;   ///< types of the matrices in the file, e.g. "q4_1"
  std::string compute_types;  ///< types that many rows are computed with, e.g. "q8_0"
  std::int32_t num_layers = 0;
  std::int32_t num_q_heads = 0;
  std::int32_t num_kv_heads = 0;
  std::int32_t head_dim = 0;
  std::int32_t embedding_dim = 0;
  std::int32_t feed_forward_dim = 0;
  std::int32_t vocabulary = 0;
  std::int64_t context = 0;  ///< tokens the model was trained for
  std::int64_t parameters = 0;
  std::int64_t weight_bytes = 0;  ///< bytes of the weights as computed with, copies included
};

struct ModelOptions {
  /// Re-encode weight types that have no fast matrix kernel on this machine at load.
  bool reencode = true;
  /// Copy matrices into the layouts that ggml multiplies fastest, where it has one for their type
  /// on this machine (AMX, interleaved rows). false: use them as they lie in the file.
  bool repack = true;
  /// Where Q, K and V (or gate and up) are copied that way and agree in type, copy them into one
  /// matrix. Results are the same; a step needs fewer multiplications.
  bool merge = true;
  int threads = 0;  ///< for re-encoding; 0: all cores
};

struct ModelWeights;  // src/model/weights.h

/// A GGUF model: memory-mapped weights and tokenizer, immutable, shared by any number of engines.
class Model {
 public:
  /// Throws FileError (missing, truncated, malformed: names file and field) or UnsupportedModel
  /// (architecture, sliding window, MoE …: names it).
  static std::shared_ptr<const Model> load(const std::string& path,
                                           const ModelOptions& options = {});
  ~Model();

  const ModelInfo& info() const;
  const Tokenizer& tokenizer() const;
  const ModelWeights& weights() const { return *weights_; }

 private:
  Model();
  std::unique_ptr<ModelWeights> weights_;
  std::unique_ptr<Tokenizer> tokenizer_;
};

/// Path of the model that is packaged with the program, empty if it is not installed. The
/// environment variable QUEST_MODEL overrides it.
std::string default_model_path();

}  // namespace quest
