// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "eval/head_probe.h"

namespace quest::eval {

// Plain attention over decoded pages, for diagnostics and baselines that no serving kernel runs.

/// scale · q·k of all tokens of page `page`, empty slots included. logits: [page_size].
void page_logits(const HeadPages& pages, const float* q, float scale, std::int32_t page,
                 float* logits);

/// Weights that attention gives to the first `tokens` tokens, added to `sums`: [tokens].
/// logits (scratch): [num_pages * page_size].
void add_weights(const HeadPages& pages, const float* q, float scale, std::int64_t tokens,
                 double factor, std::vector<float>& logits, double* sums);

/// Attention of one query over the listed tokens alone. out: [head_dim]. Adds `factor` times the
/// weights to `weights`: [tokens.size()]. No token: zeros.
void token_attention(const HeadPages& pages, std::span<const std::int64_t> tokens, const float* q,
                     float scale, double factor, float* out, std::span<double> weights);

}  // namespace quest::eval
