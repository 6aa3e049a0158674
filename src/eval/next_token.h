// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "quest/tokenizer.h"

namespace quest::eval {

// Logits as a distribution of the next token; float64, natural logarithms.

double log_sum_exp(std::span<const float> logits);
/// -log of the token's probability.
double negative_log_likelihood(std::span<const float> logits, Token token);
/// KL(p ‖ q) of two rows of logits, at least 0.
double kl_divergence(std::span<const float> p, std::span<const float> q);
/// The first of the largest.
Token likeliest(std::span<const float> logits);

}  // namespace quest::eval
