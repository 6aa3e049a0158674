// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace quest {

/// Reads the metadata of a GGUF file without trusting a byte of it, so that ggml and libllama,
/// which abort on some malformed files, only ever meet files that they can take. Every count,
/// length and offset is bounded by the size of the file before it is used; nothing larger than the
/// metadata is allocated. Checks the container (header, keys, tensor table, data section) and the
/// tokenizer's keys; whether keys and tensors make a model is the loader's question.
/// Throws FileError naming the file and the field, UnsupportedModel for a well-formed file of a
/// kind that the engine does not read (other tokenizer families, split files).
void check_gguf(const std::string& path);

/// The same on bytes in memory; `name` stands for the path in messages.
void check_gguf_bytes(std::span<const std::byte> bytes, const std::string& name);

}  // namespace quest
