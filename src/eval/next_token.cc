// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "eval/next_token.h"

#include <algorithm>
#include <cmath>

namespace quest::eval {

double log_sum_exp(std::span<const float> logits) {
  const double top = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(double{logit} - top);
  return top + std::log(sum);
}

double negative_log_likelihood(std::span<const float> logits, Token token) {
  return log_sum_exp(logits) - double{logits[static_cast<std::size_t>(token)]};
}

double kl_divergence(std::span<const float> p, std::span<const float> q) {
  const double p_norm = log_sum_exp(p);
  const double q_norm = log_sum_exp(q);
  double sum = 0;
  for (std::size_t i = 0; i < p.size(); ++i) {
    const double log_p = double{p[i]} - p_norm;
    sum += std::exp(log_p) * (log_p - (double{q[i]} - q_norm));
  }
  return std::max(0.0, sum);  // rounding may leave equal distributions just below
}

Token likeliest(std::span<const float> logits) {
  return static_cast<Token>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

}  // namespace quest::eval
