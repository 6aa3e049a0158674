// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "model/weight_placement.h"

#include <ggml-backend.h>
#include <ggml-cpu.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <thread>

namespace quest {

namespace {

std::vector<ggml_backend_buffer_type_t> special_buffer_types(ggml_backend_dev_t device) {
  std::vector<ggml_backend_buffer_type_t> types;
  ggml_backend_reg_t registry = ggml_backend_dev_backend_reg(device);
  const auto get_types = reinterpret_cast<ggml_backend_dev_get_extra_bufts_t>(
      ggml_backend_reg_get_proc_address(registry, "ggml_backend_dev_get_extra_bufts"));
  if (get_types == nullptr) return types;
  for (ggml_backend_buffer_type_t* type = get_types(device); type != nullptr && *type != nullptr;
       ++type) {
    types.push_back(*type);
  }
  return types;
}

// ggml decides by operation and buffer together, so ask with a multiplication whose matrix lies in
// an (empty) buffer of that type.
bool multiplies(ggml_backend_dev_t device, ggml_backend_buffer_type_t type,
                const ggml_tensor* matrix) {
  ggml_init_params params{};
  params.mem_size = ggml_tensor_overhead() * 4;
  params.no_alloc = true;
  ggml_context_ptr context(ggml_init(params));
  ggml_tensor* weights =
      ggml_new_tensor_2d(context.get(), matrix->type, matrix->ne[0], matrix->ne[1]);
  ggml_tensor* rows = ggml_new_tensor_2d(context.get(), GGML_TYPE_F32, matrix->ne[0], 512);
  ggml_tensor* product = ggml_mul_mat(context.get(), weights, rows);
  ggml_backend_buffer_ptr buffer(ggml_backend_buft_alloc_buffer(type, 0));
  if (!buffer) return false;
  weights->buffer = buffer.get();
  return ggml_backend_dev_supports_op(device, product);
}

}  // namespace

ggml_type prefill_type(ggml_type stored) {
  switch (stored) {
    case GGML_TYPE_Q4_1:
    case GGML_TYPE_Q5_1:
      return GGML_TYPE_Q8_0;
    default:
      return stored;
  }
}

ggml_backend_buffer_type_t matrix_buffer_type(const ggml_tensor* matrix) {
  ggml_backend_dev_t device = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
  if (device == nullptr) return nullptr;
  for (ggml_backend_buffer_type_t type : special_buffer_types(device)) {
    if (multiplies(device, type, matrix)) return type;
  }
  return nullptr;
}

std::vector<std::byte> reencode(const ggml_tensor* source, const std::byte* data, ggml_type type,
                                int threads) {
  const std::int64_t width = source->ne[0];
  const std::int64_t rows = ggml_nrows(source);
  const std::size_t source_row = ggml_row_size(source->type, width);
  const std::size_t target_row = ggml_row_size(type, width);
  std::vector<std::byte> result(target_row * static_cast<std::size_t>(rows));
  const auto convert = [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> wide(static_cast<std::size_t>(width));
    for (std::int64_t row = begin; row < end; ++row) {
      const std::byte* in = data + source_row * static_cast<std::size_t>(row);
      if (source->type == GGML_TYPE_F32) {
        std::memcpy(wide.data(), in, source_row);
      } else {
        ggml_get_type_traits(source->type)->to_float(in, wide.data(), width);
      }
      ggml_quantize_chunk(type, wide.data(),
                          result.data() + target_row * static_cast<std::size_t>(row), 0, 1, width,
                          nullptr);
    }
  };
  ggml_quantize_init(type);
  std::vector<std::thread> workers;
  workers.reserve(static_cast<std::size_t>(threads));
  for (int t = 0; t < threads; ++t) {
    workers.emplace_back(convert, rows * t / threads, rows * (t + 1) / threads);
  }
  for (std::thread& worker : workers) worker.join();
  return result;
}

}  // namespace quest
