// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace quest {

/// Scores of the candidates of one (row, KV head), one row for each query head.
struct HeadScores {
  const float* values = nullptr;  ///< [group, count], rows `stride` floats apart, no NaN
  std::int64_t stride = 0;
  std::int32_t group = 1;
  std::size_t count = 0;

  const float* row(std::int32_t head) const { return values + head * stride; }
};

/// Entries that the buffers below must have beyond `count`: passes read and write whole vectors.
inline constexpr std::size_t kScorePadding = 64;

/// Maximum over the heads. combined: [count].
void combine_max(const HeadScores& scores, float* combined);

/// Mean over the heads. combined: [count]. NaN where +inf of one head meets -inf of another.
void combine_mean(const HeadScores& scores, float* combined);

/// log Σ_heads softmax_candidates(scale · score) (SPEC S4.4), the logarithm so that candidates far
/// below the best keep their order where the probability itself would be zero in float32. When the
/// greatest score of a head is infinite, the candidates that hold it share its vote.
/// log_probabilities (scratch): group rows of count + kScorePadding; combined: count +
/// kScorePadding; count ≥ 1, scale > 0.
void combine_softmax(const HeadScores& scores, float scale, float* log_probabilities,
                     float* combined);

}  // namespace quest
