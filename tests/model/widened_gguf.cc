// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "model/widened_gguf.h"

#include <ggml-cpp.h>
#include <ggml.h>
#include <gguf.h>

#include <cstring>
#include <stdexcept>

namespace quest::testing {

void write_widened_gguf(const std::string& from, const std::string& to) {
  ggml_context* stored_tensors = nullptr;
  gguf_init_params params{};
  params.ctx = &stored_tensors;
  const gguf_context_ptr stored(gguf_init_from_file(from.c_str(), params));
  if (!stored) throw std::runtime_error("cannot read " + from);
  const ggml_context_ptr stored_owner(stored_tensors);

  std::size_t bytes = 0;
  for (ggml_tensor* t = ggml_get_first_tensor(stored_tensors); t != nullptr;
       t = ggml_get_next_tensor(stored_tensors, t)) {
    bytes +=
        ggml_tensor_overhead() + sizeof(float) * static_cast<std::size_t>(ggml_nelements(t)) + 64;
  }
  ggml_init_params memory{};
  memory.mem_size = bytes;
  const ggml_context_ptr wide_tensors(ggml_init(memory));
  const gguf_context_ptr wide(gguf_init_empty());
  gguf_set_kv(wide.get(), stored.get());
  // The context holds one more tensor, the file's data as a whole, which has no entry of its own.
  for (std::int64_t i = 0; i < gguf_get_n_tensors(stored.get()); ++i) {
    const char* name = gguf_get_tensor_name(stored.get(), i);
    const ggml_tensor* source = ggml_get_tensor(stored_tensors, name);
    ggml_tensor* copy =
        ggml_new_tensor(wide_tensors.get(), GGML_TYPE_F32, GGML_MAX_DIMS, source->ne);
    ggml_set_name(copy, name);
    if (source->type == GGML_TYPE_F32) {
      std::memcpy(copy->data, source->data, ggml_nbytes(source));
    } else {
      ggml_get_type_traits(source->type)
          ->to_float(source->data, static_cast<float*>(copy->data), ggml_nelements(source));
    }
    gguf_add_tensor(wide.get(), copy);
  }
  if (!gguf_write_to_file(wide.get(), to.c_str(), false)) {
    throw std::runtime_error("cannot write " + to);
  }
}

}  // namespace quest::testing
