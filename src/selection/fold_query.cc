// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "selection/fold_query.h"

#include <algorithm>
#include <cmath>

namespace quest {

void fold_query(const float* q, std::int64_t q_stride, std::int32_t num_heads,
                std::int32_t head_dim, float beta, float* coefficients) {
  float* min_coefficients = coefficients;
  float* max_coefficients = coefficients + head_dim;
  std::fill_n(coefficients, 2 * std::int64_t{head_dim}, 0.0F);
  for (std::int32_t h = 0; h < num_heads; ++h) {
    const float* row = q + h * q_stride;
    for (std::int32_t j = 0; j < head_dim; ++j) {
      const float width = beta * std::abs(row[j]);
      min_coefficients[j] += row[j] - width;
      max_coefficients[j] += row[j] + width;
    }
  }
  const float share = 0.5F / static_cast<float>(num_heads);
  for (std::int32_t j = 0; j < 2 * head_dim; ++j) coefficients[j] *= share;
}

void fold_query_to_box(const float* q, std::int64_t q_stride, std::int32_t num_heads,
                       std::int32_t head_dim, float beta, float* coefficients) {
  float* centre_coefficients = coefficients;
  float* half_coefficients = coefficients + head_dim;
  std::fill_n(coefficients, 2 * std::int64_t{head_dim}, 0.0F);
  for (std::int32_t h = 0; h < num_heads; ++h) {
    const float* row = q + h * q_stride;
    for (std::int32_t j = 0; j < head_dim; ++j) {
      centre_coefficients[j] += row[j];
      half_coefficients[j] += beta * std::abs(row[j]);
    }
  }
  const float share = 1.0F / static_cast<float>(num_heads);
  for (std::int32_t j = 0; j < 2 * head_dim; ++j) coefficients[j] *= share;
}

}  // namespace quest
