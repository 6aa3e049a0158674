// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "bench/llama_peer.h"

#include <llama.h>

#include <vector>

#include "bench/ggml_kv_type.h"
#include "quest/error.h"

namespace quest::cli {
namespace {

struct ModelDeleter {
  void operator()(llama_model* model) const { llama_model_free(model); }
};
struct ContextDeleter {
  void operator()(llama_context* context) const { llama_free(context); }
};

}  // namespace

struct LlamaPeer::State {
  std::unique_ptr<llama_model, ModelDeleter> model;
  std::unique_ptr<llama_context, ContextDeleter> context;
};

bool LlamaPeer::available(KvType type, bool flash_attention) {
  return flash_attention || !ggml_is_quantized(ggml_type_of(type));
}

LlamaPeer::LlamaPeer(const std::string& path, bool flash_attention)
    : flash_attention_(flash_attention), state_(std::make_unique<State>()) {
  llama_backend_init();
  state_->model.reset(llama_model_load_from_file(path.c_str(), llama_model_default_params()));
  if (!state_->model) throw FileError("llama.cpp cannot load '" + path + "'; try --peer none");
}

LlamaPeer::~LlamaPeer() = default;

void LlamaPeer::open(std::int64_t context, KvType type, int threads) {
  close();
  llama_context_params params = llama_context_default_params();
  params.n_ctx = static_cast<std::uint32_t>(context);
  params.n_batch = kChunk;
  params.n_ubatch = kChunk;
  params.n_threads = threads;
  params.n_threads_batch = threads;
  params.flash_attn_type =
      flash_attention_ ? LLAMA_FLASH_ATTN_TYPE_ENABLED : LLAMA_FLASH_ATTN_TYPE_DISABLED;
  params.type_k = ggml_type_of(type);
  params.type_v = ggml_type_of(type);
  state_->context.reset(llama_init_from_model(state_->model.get(), params));
  if (!state_->context) {
    throw Error("llama.cpp cannot make a context of " + std::to_string(context) + " tokens");
  }
}

std::span<const float> LlamaPeer::step(std::span<const Token> tokens) {
  // The batch wants a pointer to changeable tokens, although llama_decode only reads them.
  std::vector<llama_token> copy(tokens.begin(), tokens.end());
  const llama_batch batch =
      llama_batch_get_one(copy.data(), static_cast<std::int32_t>(copy.size()));
  if (const int status = llama_decode(state_->context.get(), batch); status != 0) {
    throw Error("llama.cpp failed to decode (status " + std::to_string(status) + ")");
  }
  const llama_vocab* vocab = llama_model_get_vocab(state_->model.get());
  return {llama_get_logits_ith(state_->context.get(), -1),
          static_cast<std::size_t>(llama_vocab_n_tokens(vocab))};
}

void LlamaPeer::truncate(std::int64_t length) {
  const llama_memory_t memory = llama_get_memory(state_->context.get());
  if (!llama_memory_seq_rm(memory, 0, static_cast<llama_pos>(length), -1)) {
    throw Error("llama.cpp cannot shorten its cache for this model; try --peer none");
  }
}

void LlamaPeer::close() { state_->context.reset(); }

}  // namespace quest::cli
