// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "model/tiny_gguf.h"

namespace quest::testing {

/// Adds a tokenizer section with exactly `model.vocabulary` tokens (at least 300) that libllama
/// accepts: SentencePiece with byte tokens, or byte pairs with merges.
void add_vocabulary_keys(gguf_context* gguf, const TinyModel& model);

}  // namespace quest::testing
