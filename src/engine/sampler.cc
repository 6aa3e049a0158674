// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "quest/sampler.h"

#include <llama.h>

#include <algorithm>
#include <array>
#include <vector>

#include "quest/error.h"

namespace quest {

namespace {

// The first of the largest. Lanes of their own keep the maxima apart, so that the compiler can use
// vectors; a chain of comparisons over a whole vocabulary takes twenty times as long.
Token index_of_largest(std::span<const float> logits) {
  constexpr std::size_t kLanes = 64;
  std::array<float, kLanes> lanes;
  lanes.fill(logits.front());
  std::size_t i = 0;
  for (; i + kLanes <= logits.size(); i += kLanes) {
    for (std::size_t j = 0; j < kLanes; ++j) {
      lanes[j] = logits[i + j] > lanes[j] ? logits[i + j] : lanes[j];
    }
  }
  float largest = *std::max_element(lanes.begin(), lanes.end());
  for (; i < logits.size(); ++i) largest = std::max(largest, logits[i]);
  const auto first = std::find(logits.begin(), logits.end(), largest);
  return first == logits.end() ? 0 : static_cast<Token>(first - logits.begin());
}

}  // namespace

Sampler::Sampler(const Tokenizer& tokenizer, const SamplingOptions& options) {
  if (!(options.temperature >= 0) || !(options.top_p > 0 && options.top_p <= 1) ||
      !(options.min_p >= 0 && options.min_p <= 1) || options.top_k < 0 ||
      !(options.repeat_penalty > 0)) {
    throw InvalidArgument(
        "sampling options must satisfy temperature >= 0, 0 < top-p <= 1, 0 <= min-p <= 1, "
        "top-k >= 0, repeat penalty > 0");
  }
  vocabulary_ = static_cast<std::size_t>(tokenizer.size());
  if (options.temperature == 0 && options.repeat_penalty == 1.0F) return;
  candidates_.resize(vocabulary_);
  chain_ = llama_sampler_chain_init(llama_sampler_chain_default_params());
  if (options.repeat_penalty != 1.0F) {
    constexpr std::int32_t kHistory = 64;
    llama_sampler_chain_add(
        chain_, llama_sampler_init_penalties(tokenizer.size(), kHistory, options.repeat_penalty,
                                             0.0F, 0.0F));
  }
  if (options.temperature == 0) {
    llama_sampler_chain_add(chain_, llama_sampler_init_greedy());
    return;
  }
  llama_sampler_chain_add(chain_, llama_sampler_init_top_k(options.top_k));
  llama_sampler_chain_add(chain_, llama_sampler_init_top_p(options.top_p, 1));
  llama_sampler_chain_add(chain_, llama_sampler_init_min_p(options.min_p, 1));
  llama_sampler_chain_add(chain_, llama_sampler_init_temp(options.temperature));
  llama_sampler_chain_add(chain_, llama_sampler_init_dist(options.seed));
}

Sampler::~Sampler() {
  if (chain_ != nullptr) llama_sampler_free(chain_);
}

Token Sampler::sample(std::span<const float> logits) {
  if (logits.size() != vocabulary_) {
    throw InvalidArgument("sampling needs " + std::to_string(vocabulary_) + " logits, got " +
                          std::to_string(logits.size()));
  }
  if (chain_ == nullptr) return index_of_largest(logits);
  for (std::size_t i = 0; i < logits.size(); ++i) {
    candidates_[i] = {static_cast<llama_token>(i), logits[i], 0.0F};
  }
  llama_token_data_array array{candidates_.data(), candidates_.size(), -1, false};
  llama_sampler_apply(chain_, &array);
  const Token token = array.data[array.selected].id;
  llama_sampler_accept(chain_, token);
  return token;
}

}  // namespace quest
