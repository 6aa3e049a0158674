// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "quest/kv_type.h"
#include "quest/tokenizer.h"

struct llama_context;
struct llama_model;

namespace quest::testing {

struct OracleOptions {
  KvType kv_type = KvType::kF16;
  bool flash_attention = false;
  int threads = 2;
  bool extra_buffers = false;  ///< libllama's repacked weights
  std::int32_t context = 4096;
};

/// libllama's own full attention over one sequence.
class LibllamaOracle {
 public:
  explicit LibllamaOracle(const std::string& path, const OracleOptions& options = {});
  ~LibllamaOracle();
  LibllamaOracle(const LibllamaOracle&) = delete;
  LibllamaOracle& operator=(const LibllamaOracle&) = delete;

  /// Appends the tokens. Returns logits [tokens - first, vocabulary] of those from index `first`.
  std::vector<float> read(std::span<const Token> tokens, std::size_t first = 0);
  void clear();
  std::int32_t vocabulary() const;

 private:
  llama_model* model_ = nullptr;
  llama_context* context_ = nullptr;
  std::int32_t position_ = 0;
};

/// How far distributions are from the reference's, over rows of logits [rows, vocabulary].
struct Agreement {
  std::size_t rows = 0;
  double mean_kl = 0;  ///< nats, KL(reference || other)
  double max_kl = 0;
  double top1 = 0;      ///< share of rows with the same largest logit
  double relative = 0;  ///< max |difference| / max |reference|
};
Agreement compare_logits(std::span<const float> reference, std::span<const float> other,
                         std::int32_t vocabulary);

/// Mean entropy of the rows' distributions in nats: tells a degenerate model from a useful one.
double mean_entropy(std::span<const float> logits, std::int32_t vocabulary);

}  // namespace quest::testing
