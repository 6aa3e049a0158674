// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "eval/prompt_weights.h"

#include "eval/token_attention.h"
#include "quest/team.h"

namespace quest::eval {

void PromptWatcher::observe(const PagedKv& kv, const RowRange& rows, const LayerInput& input,
                            Team& team, int thread, PromptWeights& weights) {
  const std::int32_t heads = kv.shape.num_kv_heads;
  const std::int32_t group = input.num_q_heads / heads;
  const std::int64_t length = rows.first_position + rows.num_rows;
  const auto first_list = static_cast<std::size_t>(input.layer) * heads;
  Space& own = spaces_[static_cast<std::size_t>(thread)];
  own.sums.resize(static_cast<std::size_t>(heads));
  for (std::int32_t head = 0; head < heads; ++head) {
    std::vector<double>& sums = own.sums[static_cast<std::size_t>(head)];
    sums.assign(static_cast<std::size_t>(length), 0);
    own.pages.load(kv, rows.table, head, length);
    for (std::int32_t i = thread; i < rows.num_rows; i += team.size()) {
      const bool last_row = i + 1 == rows.num_rows;
      if (!weights.with_sums && !last_row) continue;
      std::vector<double>& last = weights.last[first_list + static_cast<std::size_t>(head)];
      if (last_row) last.assign(static_cast<std::size_t>(length), 0);
      for (std::int32_t g = 0; g < group; ++g) {
        const float* const q = input.q + (rows.first_row + i) * input.q_stride +
                               (std::int64_t{head} * group + g) * kv.shape.head_dim;
        add_weights(own.pages, q, input.scale, rows.first_position + i + 1, 1.0 / group, own.logits,
                    last_row ? last.data() : sums.data());
      }
      if (!last_row) continue;
      for (std::size_t t = 0; t < last.size(); ++t) sums[t] += last[t];
    }
  }
  if (!weights.with_sums) return;
  team.wait();
  // In the order of the threads: the sums depend on their number, not on their timing.
  for (std::int32_t head = thread; head < heads; head += team.size()) {
    std::vector<double>& total = weights.sums[first_list + static_cast<std::size_t>(head)];
    total.resize(static_cast<std::size_t>(length), 0);
    for (int t = 0; t < team.size(); ++t) {
      const std::vector<double>& part =
          spaces_[static_cast<std::size_t>(t)].sums[static_cast<std::size_t>(head)];
      for (std::size_t i = 0; i < total.size(); ++i) total[i] += part[i];
    }
  }
}

}  // namespace quest::eval
