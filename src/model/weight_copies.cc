// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "model/weight_copies.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <utility>

#include "quest/error.h"

namespace quest {

namespace {

std::size_t rounded_up(std::size_t size, std::size_t alignment) {
  return (size + alignment - 1) / alignment * alignment;
}

// Before the memory is first touched. A hint: refusal changes nothing but speed.
void ask_for_huge_pages(void* begin, std::size_t size) {
#ifdef MADV_HUGEPAGE
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const auto address = reinterpret_cast<std::uintptr_t>(begin);
  const std::size_t lead = rounded_up(address, page) - address;
  if (size > lead) ::madvise(static_cast<std::byte*>(begin) + lead, size - lead, MADV_HUGEPAGE);
#else
  (void)begin;
  (void)size;
#endif
}

}  // namespace

ggml_tensor* WeightCopies::add(ggml_tensor* tensor, ggml_backend_buffer_type_t type,
                               Source source) {
  copies_.push_back({tensor, type, std::move(source)});
  return tensor;
}

std::int64_t WeightCopies::place(std::vector<ggml_backend_buffer_ptr>& buffers) {
  std::vector<ggml_backend_buffer_type_t> types;
  for (const Copy& copy : copies_) {
    if (std::find(types.begin(), types.end(), copy.type) == types.end()) types.push_back(copy.type);
  }
  std::int64_t bytes = 0;
  for (ggml_backend_buffer_type_t type : types) bytes += place(type, buffers);
  copies_.clear();
  return bytes;
}

std::int64_t WeightCopies::place(ggml_backend_buffer_type_t type,
                                 std::vector<ggml_backend_buffer_ptr>& buffers) const {
  const std::size_t alignment = ggml_backend_buft_get_alignment(type);
  const auto size_of = [&](const Copy& copy) {
    return rounded_up(ggml_backend_buft_get_alloc_size(type, copy.tensor), alignment);
  };
  std::size_t size = 0;
  for (const Copy& copy : copies_) size += copy.type == type ? size_of(copy) : 0;
  ggml_backend_buffer_ptr buffer(ggml_backend_buft_alloc_buffer(type, size));
  if (!buffer) {
    throw Error("out of memory for the weights: " + std::to_string(size) + " bytes");
  }
  ggml_backend_buffer_set_usage(buffer.get(), GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
  auto* next = static_cast<std::byte*>(ggml_backend_buffer_get_base(buffer.get()));
  ask_for_huge_pages(next, size);
  for (const Copy& copy : copies_) {
    if (copy.type != type) continue;
    ggml_backend_tensor_alloc(buffer.get(), copy.tensor, next);
    const std::vector<std::byte> data = copy.source();
    ggml_backend_tensor_set(copy.tensor, data.data(), 0, data.size());
    next += size_of(copy);
  }
  buffers.push_back(std::move(buffer));
  return static_cast<std::int64_t>(size);
}

}  // namespace quest
