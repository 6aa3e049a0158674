// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

struct gguf_context;

namespace quest::cli {

struct PaddedTokenizer {
  std::int64_t vocabulary = 0;
  std::string description;  ///< "tokenizer of NAME", and what was done to its size
};

/// Copies the tokenizer's keys from the GGUF file at `path`, padded with unused tokens up to
/// `vocabulary`; a larger one stays as it is. Throws FileError.
PaddedTokenizer copy_tokenizer(gguf_context* to, const std::string& path, std::int64_t vocabulary);

}  // namespace quest::cli
