// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "bench/step_bytes.h"

#include <ggml-cpp.h>
#include <gguf.h>

#include "quest/error.h"

namespace quest::cli {

std::int64_t step_weight_bytes(const std::string& path) {
  const gguf_init_params params = {true, nullptr};
  const gguf_context_ptr file(gguf_init_from_file(path.c_str(), params));
  if (!file) throw FileError("cannot read '" + path + "'");
  std::int64_t bytes = 0;
  for (std::int64_t i = 0; i < gguf_get_n_tensors(file.get()); ++i) {
    const bool table = std::string(gguf_get_tensor_name(file.get(), i)) == "token_embd.weight";
    if (table && gguf_find_tensor(file.get(), "output.weight") >= 0) {
      bytes += static_cast<std::int64_t>(
          ggml_row_size(gguf_get_tensor_type(file.get(), i), gguf_get_tensor_ne(file.get(), i)[0]));
    } else {
      bytes += static_cast<std::int64_t>(gguf_get_tensor_size(file.get(), i));
    }
  }
  return bytes;
}

}  // namespace quest::cli
