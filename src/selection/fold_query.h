// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace quest {

/// Folds query rows into score coefficients. The score q·c + β·|q|·r with centre c = (m + M)/2 and
/// half-width r = (M - m)/2 (SPEC S3.1, S3.4) is linear in (m, M):
///   U = Σ_j ½(q_j - β|q_j|)·m_j + ½(q_j + β|q_j|)·M_j,
/// so the mean score of `num_heads` heads is one dot product of 2·head_dim coefficients with the
/// page summary [min; max]. One head folds itself; β = 1 leaves the bound exact, without rounding.
///
/// q: [num_heads, head_dim], rows q_stride floats apart; num_heads ≥ 1.
/// coefficients: [2, head_dim], the first row multiplies the minimum. NaN in q stays NaN.
void fold_query(const float* q, std::int64_t q_stride, std::int32_t num_heads,
                std::int32_t head_dim, float beta, float* coefficients);

/// The same for summaries that hold centres and half-widths: the mean score is
///   Σ_j mean(q_j)·c_j + β·mean|q_j|·r_j.
/// coefficients: [2, head_dim], the first row multiplies the centre, the second the half-width.
void fold_query_to_box(const float* q, std::int64_t q_stride, std::int32_t num_heads,
                       std::int32_t head_dim, float beta, float* coefficients);

}  // namespace quest
