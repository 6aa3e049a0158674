// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ggml.h>

#include <cstdint>
#include <string>

#include "bench/model_shapes.h"

namespace quest::cli {

struct RandomModelOptions {
  const ModelShape* shape = nullptr;
  ggml_type type = GGML_TYPE_Q4_0;  ///< of the matrices; norms and biases are f32
  std::int64_t context = 0;         ///< 0: the shape's
  std::string tokenizer;            ///< GGUF file whose tokenizer the model gets
  std::string path;                 ///< a file that does not exist yet
  int threads = 1;
};

struct RandomModelResult {
  std::int64_t bytes = 0;
  std::int64_t parameters = 0;
  std::int64_t vocabulary = 0;
  std::int64_t context = 0;
  std::string name;
  bool complete = false;  ///< false: stopped by Ctrl-C, and no file
};

/// Writes a GGUF file of the shape with random weights (always the same), which this engine and
/// libllama load. The vocabulary has the shape's own size, so that the output head costs what the
/// real one costs: the tokenizer is padded with unused tokens, or, where it is larger, the model
/// grows to it; the name in the file says so. Weights are written in pieces of a few MiB. Throws
/// FileError as NewFile, or if the tokenizer's file is not usable.
RandomModelResult write_random_model(const RandomModelOptions& options);

}  // namespace quest::cli
