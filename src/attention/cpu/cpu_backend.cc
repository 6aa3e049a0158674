// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include <stdexcept>
#include <string>
#include <utility>

#include "attention/cpu/kernels.h"
#include "attention/cpu/layer_run.h"
#include "attention/cpu/step_space.h"
#include "quest/attention.h"
#include "quest/error.h"
#include "quest/team.h"

namespace quest {

namespace {

class CpuBackend final : public AttentionBackend {
 public:
  CpuBackend(KvCache& cache, SelectionPolicy policy)
      : cache_(cache), kernels_(cpu::kernels_for(cache.shape())) {
    CpuBackend::set_policy(std::move(policy));
  }

  std::string_view name() const override { return "cpu"; }
  std::string device() const override { return "cpu"; }

  void set_policy(SelectionPolicy policy) override {
    const CacheShape& shape = cache_.shape();
    validate(policy, shape.num_layers, shape.num_kv_heads, shape.page_size);
    policy_ = std::move(policy);
  }

  void begin_step(const Batch& batch, std::int32_t num_q_heads, int threads) override {
    space_.begin(batch, cache_, policy_, num_q_heads, threads);
  }

  void forward(const LayerInput& input, Team& team, int thread) override {
    if (team.size() > space_.plan.threads) {
      throw std::logic_error("a team of " + std::to_string(team.size()) +
                             " runs a step that was begun for " +
                             std::to_string(space_.plan.threads) + " threads");
    }
    cpu::LayerRun(space_, cache_, policy_, kernels_, input, team, thread).run(counters_.seconds);
    if (thread != 0) return;
    cpu::count_layer(space_, cache_.shape(), policy_, input.layer, counters_);
    last_layer_ = input.layer;
  }

  void end_step() override {
    for (const auto& thread : space_.threads) {
      counters_.v_bytes -= thread->values_left_out * cache_.shape().value_bytes();
      thread->values_left_out = 0;
    }
    const std::int64_t place = space_.nan_place.exchange(cpu::StepSpace::kNoNan);
    if (place == cpu::StepSpace::kNoNan) return;
    const std::int64_t heads = cache_.shape().num_kv_heads;
    const auto rows = static_cast<std::int64_t>(space_.plan.rows.size());
    throw Error("NaN page score in layer " + std::to_string(place / heads / rows) + ", KV head " +
                std::to_string(place % heads) + ", row " + std::to_string(place / heads % rows) +
                ": a query or a key is NaN; check the model file or keep this layer dense");
  }

  const AttentionCounters& counters() const override { return counters_; }
  void reset_counters() override { counters_ = {}; }

  SelectedPages last_selection() const override {
    SelectedPages selection;
    const std::int32_t heads = cache_.shape().num_kv_heads;
    for (std::size_t i = 0; i < space_.list_count.size(); ++i) {
      const cpu::RowPlan& row = space_.plan.rows[i / heads];
      const cpu::RequestPlan& request = space_.plan.requests[static_cast<std::size_t>(row.request)];
      const PageBudget budget = policy_.page_budget(
          last_layer_, static_cast<std::int32_t>(i) % heads, heads, cache_.shape().page_size);
      if (cpu::StepPlan::scored(request, row, budget)) {
        const auto first = space_.pages.begin() + space_.list_begin[i];
        selection.pages.insert(selection.pages.end(), first, first + space_.list_count[i]);
      } else {
        for (std::int32_t p = 0; p < row.num_pages; ++p) selection.pages.push_back(p);
      }
      selection.indptr.push_back(static_cast<std::int64_t>(selection.pages.size()));
    }
    return selection;
  }

 private:
  KvCache& cache_;
  SelectionPolicy policy_;
  const cpu::Kernels kernels_;
  cpu::StepSpace space_;
  AttentionCounters counters_;
  std::int32_t last_layer_ = 0;
};

}  // namespace

std::unique_ptr<AttentionBackend> make_cpu_backend(KvCache& cache, SelectionPolicy policy) {
  return std::make_unique<CpuBackend>(cache, std::move(policy));
}

}  // namespace quest
