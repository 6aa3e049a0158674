// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "eval/attention_probe.h"

#include <algorithm>
#include <iterator>

#include "quest/team.h"

namespace quest::eval {

AttentionProbe::Watch::Watch(AttentionProbe& probe, const KvCache& cache, float beta,
                             std::int32_t top, FidelityRun& run)
    : probe_(probe) {
  probe.cache_ = &cache;
  probe.beta_ = beta;
  probe.top_ = top;
  probe.spaces_.resize(static_cast<std::size_t>(cache.shape().num_kv_heads));
  probe.run_ = &run;
}

void AttentionProbe::observe(const Batch& batch, const LayerInput& input,
                             const SelectedPages& pages, Team& team, int thread) {
  const std::int32_t heads = cache_->shape().num_kv_heads;
  for (std::int32_t head = thread; head < heads; head += team.size()) {
    probe_kv_head(batch, input, pages, head, spaces_[static_cast<std::size_t>(head)]);
  }
  if (thread == 0) compare_with_layer_before(input, pages, batch.num_pages(0));
}

void AttentionProbe::probe_kv_head(const Batch& batch, const LayerInput& input,
                                   const SelectedPages& pages, std::int32_t kv_head,
                                   HeadPages& space) {
  const CacheShape& shape = cache_->shape();
  space.load(cache_->layer(input.layer), batch.pages(0), kv_head, batch.kv_len(0, shape.page_size));
  const std::int64_t first = pages.indptr[static_cast<std::size_t>(kv_head)];
  const std::int64_t last = pages.indptr[static_cast<std::size_t>(kv_head) + 1];
  ProbedQuery query;
  query.scale = input.scale;
  query.beta = beta_;
  query.top = top_;
  query.read =
      std::span(pages.pages)
          .subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(last - first));
  const std::int32_t group = input.num_q_heads / shape.num_kv_heads;
  for (std::int32_t g = 0; g < group; ++g) {
    const std::int32_t q_head = kv_head * group + g;
    query.q = input.q + std::int64_t{q_head} * shape.head_dim;
    query.out = input.out + std::int64_t{q_head} * shape.head_dim;
    const auto index = static_cast<std::size_t>(input.layer) * run_->num_q_heads + q_head;
    probe_query(space, query, run_->heads[index]);
  }
}

void AttentionProbe::compare_with_layer_before(const LayerInput& input, const SelectedPages& pages,
                                               std::int32_t num_pages) {
  std::vector<std::int32_t> now = pages.pages;
  std::sort(now.begin(), now.end());
  now.erase(std::unique(now.begin(), now.end()), now.end());
  if (static_cast<std::int32_t>(now.size()) == num_pages) now.clear();
  if (input.layer > 0 && !now.empty() && !pages_before_.empty()) {
    std::vector<std::int32_t> both;
    std::set_intersection(now.begin(), now.end(), pages_before_.begin(), pages_before_.end(),
                          std::back_inserter(both));
    const auto layer = static_cast<std::size_t>(input.layer);
    run_->jaccard[layer] += static_cast<double>(both.size()) /
                            static_cast<double>(now.size() + pages_before_.size() - both.size());
    run_->jaccard_tokens[layer] += 1;
  }
  pages_before_ = std::move(now);
}

}  // namespace quest::eval
