// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "model/libllama_oracle.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "llama.h"

namespace quest::testing {
namespace {

constexpr std::size_t kBatch = 512;

void silence(ggml_log_level, const char*, void*) {}

ggml_type ggml_type_of(KvType type) {
  switch (type) {
    case KvType::kF32:
      return GGML_TYPE_F32;
    case KvType::kF16:
      return GGML_TYPE_F16;
    case KvType::kBF16:
      return GGML_TYPE_BF16;
    case KvType::kQ8_0:
      return GGML_TYPE_Q8_0;
  }
  return GGML_TYPE_F32;
}

/// log softmax of one row in double precision.
std::vector<double> log_probabilities(std::span<const float> row) {
  const double top = *std::max_element(row.begin(), row.end());
  double sum = 0;
  for (const float logit : row) sum += std::exp(logit - top);
  std::vector<double> result;
  for (const float logit : row) result.push_back(logit - top - std::log(sum));
  return result;
}

std::ptrdiff_t index_of_largest(std::span<const float> row) {
  return std::max_element(row.begin(), row.end()) - row.begin();
}

}  // namespace

LibllamaOracle::LibllamaOracle(const std::string& path, const OracleOptions& options) {
  llama_log_set(silence, nullptr);
  llama_backend_init();
  llama_model_params model_params = llama_model_default_params();
  model_params.n_gpu_layers = 0;
  model_params.use_extra_bufts = options.extra_buffers;
  model_ = llama_model_load_from_file(path.c_str(), model_params);
  if (model_ == nullptr) throw std::runtime_error("libllama does not load " + path);
  llama_context_params params = llama_context_default_params();
  params.n_ctx = static_cast<std::uint32_t>(options.context);
  params.n_batch = kBatch;
  params.n_ubatch = kBatch;
  params.n_threads = options.threads;
  params.n_threads_batch = options.threads;
  params.type_k = ggml_type_of(options.kv_type);
  params.type_v = ggml_type_of(options.kv_type);
  params.flash_attn_type =
      options.flash_attention ? LLAMA_FLASH_ATTN_TYPE_ENABLED : LLAMA_FLASH_ATTN_TYPE_DISABLED;
  context_ = llama_init_from_model(model_, params);
  if (context_ == nullptr) {
    llama_model_free(model_);
    throw std::runtime_error("libllama gives no context for " + path);
  }
}

LibllamaOracle::~LibllamaOracle() {
  llama_free(context_);
  llama_model_free(model_);
}

std::int32_t LibllamaOracle::vocabulary() const {
  return llama_vocab_n_tokens(llama_model_get_vocab(model_));
}

void LibllamaOracle::clear() {
  llama_memory_clear(llama_get_memory(context_), true);
  position_ = 0;
}

std::vector<float> LibllamaOracle::read(std::span<const Token> tokens, std::size_t first) {
  std::vector<float> result;
  const auto width = static_cast<std::size_t>(vocabulary());
  for (std::size_t start = 0; start < tokens.size(); start += kBatch) {
    const std::size_t count = std::min(kBatch, tokens.size() - start);
    llama_batch batch = llama_batch_init(static_cast<std::int32_t>(count), 0, 1);
    batch.n_tokens = static_cast<std::int32_t>(count);
    for (std::size_t i = 0; i < count; ++i) {
      batch.token[i] = tokens[start + i];
      batch.pos[i] = position_++;
      batch.n_seq_id[i] = 1;
      batch.seq_id[i][0] = 0;
      batch.logits[i] = start + i >= first ? 1 : 0;
    }
    const std::int32_t status = llama_decode(context_, batch);
    for (std::size_t i = 0; i < count && status == 0; ++i) {
      if (start + i < first) continue;
      const float* row = llama_get_logits_ith(context_, static_cast<std::int32_t>(i));
      result.insert(result.end(), row, row + width);
    }
    llama_batch_free(batch);
    if (status != 0) throw std::runtime_error("llama_decode: " + std::to_string(status));
  }
  return result;
}

Agreement compare_logits(std::span<const float> reference, std::span<const float> other,
                         std::int32_t vocabulary) {
  const auto width = static_cast<std::size_t>(vocabulary);
  if (reference.size() != other.size() || reference.empty() || reference.size() % width != 0) {
    throw std::runtime_error("logits of different sizes: " + std::to_string(reference.size()) +
                             " and " + std::to_string(other.size()));
  }
  Agreement result;
  result.rows = reference.size() / width;
  double difference = 0;
  double size = 0;
  for (std::size_t r = 0; r < result.rows; ++r) {
    const std::span<const float> a = reference.subspan(r * width, width);
    const std::span<const float> b = other.subspan(r * width, width);
    const std::vector<double> log_a = log_probabilities(a);
    const std::vector<double> log_b = log_probabilities(b);
    double kl = 0;
    for (std::size_t i = 0; i < width; ++i) {
      kl += std::exp(log_a[i]) * (log_a[i] - log_b[i]);
      difference = std::max(difference, std::abs(double{a[i]} - double{b[i]}));
      size = std::max(size, std::abs(double{a[i]}));
    }
    // A NaN must not slip through std::max.
    if (!(kl < 1e9)) kl = 1e9;
    result.mean_kl += kl / static_cast<double>(result.rows);
    result.max_kl = std::max(result.max_kl, kl);
    if (index_of_largest(a) == index_of_largest(b)) {
      result.top1 += 1.0 / static_cast<double>(result.rows);
    }
  }
  result.relative = result.max_kl >= 1e9 ? 1e9 : difference / size;
  return result;
}

double mean_entropy(std::span<const float> logits, std::int32_t vocabulary) {
  const auto width = static_cast<std::size_t>(vocabulary);
  const std::size_t rows = logits.size() / width;
  double total = 0;
  for (std::size_t r = 0; r < rows; ++r) {
    for (const double value : log_probabilities(logits.subspan(r * width, width))) {
      total -= std::exp(value) * value;
    }
  }
  return total / static_cast<double>(rows);
}

}  // namespace quest::testing
