// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "eval/observed_backend.h"

#include <string>
#include <utility>

#include "quest/team.h"

namespace quest::eval {
namespace {

class ObservedBackend final : public AttentionBackend {
 public:
  ObservedBackend(std::unique_ptr<AttentionBackend> inner, LayerObserver& observer)
      : inner_(std::move(inner)), observer_(observer) {}

  std::string_view name() const override { return inner_->name(); }
  std::string device() const override { return inner_->device(); }
  void set_policy(SelectionPolicy policy) override { inner_->set_policy(std::move(policy)); }

  void begin_step(const Batch& batch, std::int32_t num_q_heads, int threads) override {
    batch_ = &batch;
    inner_->begin_step(batch, num_q_heads, threads);
  }

  void forward(const LayerInput& input, Team& team, int thread) override {
    inner_->forward(input, team, thread);
    if (!observer_.wants_layers()) return;
    team.wait();  // only now are all outputs complete
    if (thread == 0) pages_ = inner_->last_selection();
    team.wait();
    observer_.observe(*batch_, input, pages_, team, thread);
  }

  void end_step() override { inner_->end_step(); }
  const AttentionCounters& counters() const override { return inner_->counters(); }
  void reset_counters() override { inner_->reset_counters(); }
  SelectedPages last_selection() const override { return inner_->last_selection(); }

 private:
  const std::unique_ptr<AttentionBackend> inner_;
  LayerObserver& observer_;
  const Batch* batch_ = nullptr;
  SelectedPages pages_;
};

}  // namespace

std::unique_ptr<AttentionBackend> observe_backend(std::unique_ptr<AttentionBackend> inner,
                                                  LayerObserver& observer) {
  return std::make_unique<ObservedBackend>(std::move(inner), observer);
}

}  // namespace quest::eval
