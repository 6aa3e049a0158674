// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "eval/token_attention.h"

#include <algorithm>
#include <cmath>

namespace quest::eval {

void page_logits(const HeadPages& pages, const float* q, float scale, std::int32_t page,
                 float* logits) {
  constexpr std::int32_t kLanes = 8;  // divides every page size
  const std::int32_t size = pages.page_size();
  for (std::int32_t first = 0; first < size; first += kLanes) {
    const float* keys = pages.keys(page) + first;
    float dots[kLanes] = {};
    for (std::int32_t j = 0; j < pages.head_dim(); ++j, keys += size) {
      for (std::int32_t t = 0; t < kLanes; ++t) dots[t] += q[j] * keys[t];
    }
    for (std::int32_t t = 0; t < kLanes; ++t) logits[first + t] = scale * dots[t];
  }
}

void add_weights(const HeadPages& pages, const float* q, float scale, std::int64_t tokens,
                 double factor, std::vector<float>& logits, double* sums) {
  const std::int32_t size = pages.page_size();
  const std::int64_t num_pages = (tokens + size - 1) / size;
  logits.resize(static_cast<std::size_t>(num_pages * size));
  for (std::int64_t p = 0; p < num_pages; ++p) {
    page_logits(pages, q, scale, static_cast<std::int32_t>(p), logits.data() + p * size);
  }
  logits.resize(static_cast<std::size_t>(tokens));
  const float top = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (float& logit : logits) {
    logit = std::exp(logit - top);
    sum += double{logit};
  }
  const double share = factor / sum;
  for (std::size_t t = 0; t < logits.size(); ++t) sums[t] += share * double{logits[t]};
}

void token_attention(const HeadPages& pages, std::span<const std::int64_t> tokens, const float* q,
                     float scale, double factor, float* out, std::span<double> weights) {
  const std::int32_t d = pages.head_dim();
  const std::int32_t size = pages.page_size();
  std::fill_n(out, d, 0.0F);
  if (tokens.empty()) return;
  std::vector<double> logits;
  for (const std::int64_t token : tokens) {
    const float* const key = pages.keys(static_cast<std::int32_t>(token / size)) + token % size;
    float dot = 0;
    for (std::int32_t j = 0; j < d; ++j) dot += q[j] * key[std::int64_t{j} * size];
    logits.push_back(double{scale} * double{dot});
  }
  const double top = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (double& logit : logits) {
    logit = std::exp(logit - top);
    sum += logit;
  }
  std::vector<double> mean(static_cast<std::size_t>(d), 0.0);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const double weight = logits[i] / sum;
    weights[i] += factor * weight;
    const std::int64_t page = tokens[i] / size;
    const float* const value =
        pages.values(static_cast<std::int32_t>(page)) + tokens[i] % size * std::int64_t{d};
    for (std::size_t j = 0; j < mean.size(); ++j) mean[j] += weight * double{value[j]};
  }
  for (std::size_t j = 0; j < mean.size(); ++j) out[j] = static_cast<float>(mean[j]);
}

}  // namespace quest::eval
