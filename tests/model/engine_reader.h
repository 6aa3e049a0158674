// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "quest/engine.h"

namespace quest::testing {

/// Weights keep their types; layouts as the program would choose them.
inline ModelOptions stored_types() {
  ModelOptions options;
  options.reencode = false;
  options.threads = 2;
  return options;
}

/// Weights as on a machine for which ggml has no layout of its own, slow types re-encoded.
inline ModelOptions reencoded_types() {
  ModelOptions options;
  options.repack = false;
  options.threads = 2;
  return options;
}

/// An engine over a file, full attention unless the options say otherwise.
inline std::unique_ptr<Engine> make_engine(const std::string& path, const EngineOptions& options,
                                           const ModelOptions& model = stored_types()) {
  return std::make_unique<Engine>(Model::load(path, model), options);
}

/// Full attention, two threads, small context.
inline EngineOptions dense_options(KvType kv_type = KvType::kF32, std::int64_t context = 1024) {
  EngineOptions options;
  options.context = context;
  options.kv_type = kv_type;
  options.policy.dense = true;
  options.threads = 2;
  return options;
}

struct ReadOptions {
  bool sparse = false;
  std::size_t chunk = 512;
  std::size_t first = 0;  ///< index of the first token whose logits are wanted
};

/// Appends the tokens to the sequence in chunks. Returns logits [tokens - first, vocabulary].
inline std::vector<float> read(Engine& engine, SequenceId sequence, std::span<const Token> tokens,
                               const ReadOptions& options = {}) {
  const auto width = static_cast<std::size_t>(engine.model().info().vocabulary);
  std::vector<float> result;
  for (std::size_t start = 0; start < tokens.size(); start += options.chunk) {
    const std::size_t count = std::min(options.chunk, tokens.size() - start);
    const std::size_t skipped = options.first > start ? options.first - start : 0;
    StepRequest request;
    request.sequence = sequence;
    request.tokens = tokens.subspan(start, count);
    request.sparse = options.sparse;
    request.all_logits = skipped < count;
    const std::span<const float> logits = engine.step(std::span(&request, 1));
    if (skipped >= count) continue;
    const std::span<const float> wanted = logits.subspan(skipped * width);
    result.insert(result.end(), wanted.begin(), wanted.end());
  }
  return result;
}

}  // namespace quest::testing
