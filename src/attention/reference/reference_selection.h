// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "quest/policy.h"

namespace quest::reference {

/// Selection written a second time, to be read rather than to be fast: the oracle of
/// src/selection, with which it shares no code. Everything is float64.

/// Score of one page for one query head (SPEC S3.1, S3.4): Σ_j q_j·c_j + β·|q_j|·r_j.
/// q, minimum, maximum: [head_dim].
double score_page(const float* q, const float* minimum, const float* maximum, std::int32_t head_dim,
                  double beta);

/// Pages that a row which sees `kv_len` tokens reads whatever their scores, most important first,
/// cut at the budget (SPEC S4.1, S4.2).
std::vector<std::int32_t> forced_pages(const SelectionPolicy& policy, std::int64_t kv_len,
                                       std::int32_t page_size, std::int64_t page_budget);

/// Selected pages, ascending (SPEC S4.4). scores: [group][P], one row for each query head;
/// page_budget < P; `scale` turns scores into logits for kGroupSoftmax.
/// Sets `nan` if a score is NaN; the list is not meaningful then.
std::vector<std::int32_t> select_pages(GroupMode mode,
                                       const std::vector<std::vector<double>>& scores,
                                       const std::vector<std::int32_t>& forced,
                                       std::int64_t page_budget, double scale, bool& nan);

}  // namespace quest::reference
