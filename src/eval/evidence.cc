// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "quest/eval/evidence.h"

#include <algorithm>
#include <utility>

#include "eval/observed_backend.h"

namespace quest::eval {

std::vector<std::int32_t> pages_of(std::span<const TokenRange> ranges, std::int32_t page_size) {
  std::vector<std::int32_t> pages;
  for (const TokenRange& range : ranges) {
    for (std::int64_t p = range.begin / page_size; p * page_size < range.end; ++p) {
      pages.push_back(static_cast<std::int32_t>(p));
    }
  }
  std::sort(pages.begin(), pages.end());
  pages.erase(std::unique(pages.begin(), pages.end()), pages.end());
  return pages;
}

double EvidenceReach::share() const {
  return lists == 0 ? 0 : static_cast<double>(hits) / static_cast<double>(lists);
}

void EvidenceReach::add_layer(std::int32_t layer,
                              std::span<const std::span<const std::int32_t>> layer_lists,
                              std::span<const std::vector<std::int32_t>> mentions,
                              std::int32_t num_pages) {
  for (const std::span<const std::int32_t> list : layer_lists) {
    if (std::cmp_equal(list.size(), num_pages)) continue;
    ++lists;
    const bool hit = std::any_of(mentions.begin(), mentions.end(), [list](const auto& pages) {
      return std::includes(list.begin(), list.end(), pages.begin(), pages.end());
    });
    if (!hit) continue;
    ++hits;
    if (!first_layer) first_layer = layer;
  }
}

/// Follows the last row of each step.
class EvidenceObserver final : public LayerObserver {
 public:
  void use(const CacheShape& shape) { shape_ = shape; }

  void watch(const Evidence& evidence) {
    mentions_.clear();
    for (const TokenRange& mention : evidence) {
      mentions_.push_back(pages_of({&mention, 1}, shape_.page_size));
    }
    reach_ = {};
    watching_ = true;
  }
  void stop() { watching_ = false; }
  const EvidenceReach& reach() const { return reach_; }

  bool wants_layers() const override { return watching_; }

  void observe(const Batch& batch, const LayerInput& input, const SelectedPages& pages, Team&,
               int thread) override {
    if (thread != 0 || batch.num_rows() == 0) return;
    if (input.layer == 0) reach_ = {};
    std::int32_t request = batch.num_requests() - 1;
    while (batch.num_rows(request) == 0) --request;
    const auto heads = static_cast<std::size_t>(shape_.num_kv_heads);
    const std::size_t first = (static_cast<std::size_t>(batch.num_rows()) - 1) * heads;
    lists_.clear();
    for (std::size_t i = first; i < first + heads; ++i) {
      lists_.emplace_back(pages.pages.data() + pages.indptr[i],
                          static_cast<std::size_t>(pages.indptr[i + 1] - pages.indptr[i]));
    }
    reach_.add_layer(input.layer, lists_, mentions_, batch.num_pages(request));
  }

 private:
  CacheShape shape_;
  std::vector<std::vector<std::int32_t>> mentions_;  ///< pages of each
  std::vector<std::span<const std::int32_t>> lists_;
  EvidenceReach reach_;
  bool watching_ = false;
};

EvidenceProbe::EvidenceProbe() : observer_(std::make_unique<EvidenceObserver>()) {}
EvidenceProbe::~EvidenceProbe() = default;

AttentionFactory EvidenceProbe::attention(AttentionFactory inner) {
  return [observer = observer_.get(), inner = std::move(inner)](KvCache& cache,
                                                                const SelectionPolicy& policy) {
    observer->use(cache.shape());
    return observe_backend(inner ? inner(cache, policy) : make_cpu_backend(cache, policy),
                           *observer);
  };
}

EvidenceProbe::Watch::Watch(EvidenceProbe& probe, const Evidence& evidence) : probe_(probe) {
  probe.observer_->watch(evidence);
}
EvidenceProbe::Watch::~Watch() { probe_.observer_->stop(); }

const EvidenceReach& EvidenceProbe::reach() const { return observer_->reach(); }

}  // namespace quest::eval
