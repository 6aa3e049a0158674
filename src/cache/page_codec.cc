// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "cache/page_codec.h"

#include <ggml.h>

#include <cstdint>
#include <cstring>

#include "core/elements.h"

namespace quest {

namespace {

/// Scale `index` of those that follow `elements` 8-bit integers.
float scale_at(const std::byte* q, std::int64_t elements, std::int64_t index) {
  std::uint16_t bits = 0;
  std::memcpy(&bits, q + elements + index * CacheShape::kScaleBytes, sizeof bits);
  return ggml_fp16_to_fp32(bits);
}

/// Of one channel of a q4 summary: [minimum, maximum] to `bounds` and `bounds + head_dim`.
void decode_box(const CacheShape& shape, const std::byte* summary, std::int64_t channel,
                float* bounds) {
  const auto byte = std::to_integer<int>(summary[channel]);
  const int upper = byte >> 3;
  const int signed_upper = upper < 16 ? upper : upper - 32;
  const std::int64_t block = channel / kScaleBlock;
  const float centre = static_cast<float>(signed_upper) * scale_at(summary, shape.head_dim, block);
  const float half = static_cast<float>(byte & 7) *
                     scale_at(summary, shape.head_dim, shape.scale_blocks() + block);
  bounds[channel] = centre - half;
  bounds[shape.head_dim + channel] = centre + half;
}

float number(const std::byte* q, std::int64_t index) {
  return static_cast<float>(static_cast<std::int8_t>(q[index]));
}

}  // namespace

void decode_keys(const CacheShape& shape, const std::byte* page, float* keys) {
  if (shape.type != KvType::kQ8_0) {
    decode(shape.type, page, keys, shape.page_elements());
    return;
  }
  const std::int64_t size = shape.page_size;
  for (std::int64_t j = 0; j < shape.head_dim; ++j) {
    for (std::int64_t t = 0; t < size; ++t) {
      keys[j * size + t] = number(page, (j / 2 * size + t) * 2 + j % 2) *
                           scale_at(page, shape.page_elements(), j / kScaleBlock * size + t);
    }
  }
}

void decode_values(const CacheShape& shape, const std::byte* page, float* values) {
  if (shape.type != KvType::kQ8_0) {
    decode(shape.type, page, values, shape.page_elements());
    return;
  }
  const std::int64_t size = shape.page_size;
  for (std::int64_t t = 0; t < size; ++t) {
    for (std::int64_t j = 0; j < shape.head_dim; ++j) {
      values[t * shape.head_dim + j] =
          number(page, t * shape.head_dim + j) *
          scale_at(page, shape.page_elements(), j / kScaleBlock * size + t);
    }
  }
}

void decode_summary(const CacheShape& shape, const std::byte* summary, float* bounds) {
  const std::int64_t elements = std::int64_t{2} * shape.head_dim;
  if (shape.summary_type == SummaryType::kPlain) {
    decode(shape.plain_summary(), summary, bounds, elements);
    return;
  }
  if (shape.summary_type == SummaryType::kQ4) {
    for (std::int64_t j = 0; j < shape.head_dim; ++j) decode_box(shape, summary, j, bounds);
    return;
  }
  for (std::int64_t i = 0; i < elements; ++i) {
    bounds[i] = number(summary, i) * scale_at(summary, elements, i % shape.head_dim / kScaleBlock);
  }
}

}  // namespace quest
