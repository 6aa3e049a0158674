// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "quest/kv_type.h"

namespace quest {

/// How far float32 arithmetic may be off for one query head, over all pages of a row.
///
/// Let t_j be the terms of a sum over channels, exact, and u = 2^-24. Whatever the order of the
/// additions and whether products are fused, the computed sum is off by at most
///   γ_n · Σ |t_j|,  γ_n = n·u / (1 - n·u),
/// if no term passes through more than n roundings. The kernels' paths are within n = head_dim + 24
/// (a chain over the channels, the tree over lanes, block scales, and for masses the exponent's
/// argument). Terms of a bound and of a logit are at most |q_j|·a_j, where a_j is the greatest
/// magnitude of channel j in any summary, which no stored key exceeds; of a q4 summary, whose bound
/// has two terms a channel, their sum |q_j|·(|c_j| + r_j) is. The logits of q8_0 keys come
/// from a query that is rounded to 16-bit integers for each block of channels, off by at most
/// 0.51 · max|q| / 32767 (and by all of q where it underflows), and so may the bounds of q4
/// summaries.
///
/// The margin is widened by 1 %, which covers its own rounding, that of a_j, and the float64
/// arithmetic that uses it. Assumes round to nearest with gradual underflow.
///
/// Returns the margin on q·k, unscaled, ≥ 0, for bound and logit alike; +inf when numbers come near
/// the end of float32's range, where nothing is claimed.
/// q: [head_dim]; magnitudes: a, [head_dim], ≥ 0; scale: factor on q·k, > 0; type: of the keys.
/// summary: how bounds are stored.
double rounding_margin(const float* q, const float* magnitudes, std::int32_t head_dim, float scale,
                       KvType type, SummaryType summary = SummaryType::kPlain);

}  // namespace quest
