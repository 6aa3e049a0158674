// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "quest/tokenizer.h"

struct llama_sampler;
struct llama_token_data;

namespace quest {

struct SamplingOptions {
  float temperature = 0;  ///< 0: greedy
  std::int32_t top_k = 40;
  float top_p = 0.95F;
  float min_p = 0.05F;
  float repeat_penalty = 1.0F;
  std::uint32_t seed = 0;
};

/// libllama's sampler chain; plain greedy choice, the first of the largest logits, without it.
class Sampler {
 public:
  /// Throws InvalidArgument for options outside their ranges.
  Sampler(const Tokenizer& tokenizer, const SamplingOptions& options);
  ~Sampler();
  Sampler(const Sampler&) = delete;
  Sampler& operator=(const Sampler&) = delete;
  /// logits: [vocabulary]. The choice enters the chain's history.
  Token sample(std::span<const float> logits);

 private:
  llama_sampler* chain_ = nullptr;  ///< null for plain greedy choice
  std::size_t vocabulary_ = 0;
  std::vector<llama_token_data> candidates_;
};

}  // namespace quest
