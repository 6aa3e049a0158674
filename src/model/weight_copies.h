// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ggml-cpp.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace quest {

/// Weights that are not used where they lie in the file. They are collected first and then placed
/// in one piece of memory for each buffer type, so that huge pages can back it: a decode step reads
/// all of it (docs/performance.md).
class WeightCopies {
 public:
  /// The tensor's bytes in ggml's plain layout; called once, when there is a place for them.
  using Source = std::function<std::vector<std::byte>()>;

  /// The tensor has no memory yet. Returns it.
  ggml_tensor* add(ggml_tensor* tensor, ggml_backend_buffer_type_t type, Source source);

  /// Gives all tensors memory and fills it. The new buffers go to `buffers`. Returns their bytes.
  /// Throws Error if there is not enough memory.
  std::int64_t place(std::vector<ggml_backend_buffer_ptr>& buffers);

 private:
  struct Copy {
    ggml_tensor* tensor;
    ggml_backend_buffer_type_t type;
    Source source;
  };
  std::int64_t place(ggml_backend_buffer_type_t type,
                     std::vector<ggml_backend_buffer_ptr>& buffers) const;

  std::vector<Copy> copies_;
};

}  // namespace quest
