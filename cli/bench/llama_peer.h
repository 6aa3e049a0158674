// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "quest/kv_type.h"
#include "quest/tokenizer.h"

namespace quest::cli {

/// llama.cpp's own engine in this process, for comparison: libllama loads the file with its default
/// parameters (its own weight repacking included). With flash attention or without: which is faster
/// depends on the machine (a factor of three was seen), so a comparison needs both.
class LlamaPeer {
 public:
  /// Tokens that one prefill call takes, libllama's default for n_ubatch.
  static constexpr std::int32_t kChunk = 512;

  /// False where libllama has no such cache: quantised values need flash attention.
  static bool available(KvType type, bool flash_attention);

  /// Throws FileError if libllama cannot load the file, Error if it cannot make a context.
  LlamaPeer(const std::string& path, bool flash_attention);
  ~LlamaPeer();
  LlamaPeer(const LlamaPeer&) = delete;
  LlamaPeer& operator=(const LlamaPeer&) = delete;

  bool flash_attention() const { return flash_attention_; }
  /// Starts an empty cache for `context` tokens.
  void open(std::int64_t context, KvType type, int threads);
  /// Reads tokens (at most kChunk) and returns the logits after the last one, [vocabulary], valid
  /// until the next call.
  std::span<const float> step(std::span<const Token> tokens);
  /// Forgets all tokens from `length` on.
  void truncate(std::int64_t length);
  /// Gives the cache's memory back.
  void close();

 private:
  struct State;
  const bool flash_attention_;
  std::unique_ptr<State> state_;
};

}  // namespace quest::cli
