// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/tiny_gguf.h"

namespace quest::testing {

using Bytes = std::vector<std::uint8_t>;

/// A malformed file and the word that the error has to contain besides the path.
struct BadFile {
  std::string name;
  Bytes bytes;
  std::string field;
  bool unsupported = false;  ///< UnsupportedModel instead of FileError
};

/// A good file with one layer, small: what the malformed ones are made from.
TinyModel good_model();

/// Files whose container or tokenizer section is malformed: `check_gguf` refuses them.
std::vector<BadFile> bad_containers();
/// Well-formed files that make no model, or none that the engine runs: the loader refuses them.
std::vector<BadFile> bad_models();

/// Offset just behind a length-prefixed name: a key's type, a tensor's dimension count.
std::size_t offset_behind(const Bytes& bytes, std::string_view name);
/// Offset of the tensor data section.
std::size_t data_offset(const Bytes& bytes);

}  // namespace quest::testing
