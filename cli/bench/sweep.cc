// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "bench/sweep.h"

#include <algorithm>
#include <utility>

#include "interrupt.h"

namespace quest::cli {
namespace {

class Sweep {
 public:
  Sweep(const SweepPlan& plan, BandwidthProbe& probe, Workers& workers)
      : plan_(plan), probe_(probe), workers_(workers) {}

  SweepResult run() {
    for (const std::int64_t context : plan_.contexts) {
      append(result_.lengths, measure(shape(context), plan_.budgets));
    }
    for (const std::int64_t page_size : plan_.page_sizes) {
      AttentionShape paged = shape(plan_.grid_context);
      paged.page_size = static_cast<std::int32_t>(page_size);
      std::vector<std::int64_t> budgets;
      for (const std::int64_t pages : plan_.pages) budgets.push_back(pages * page_size);
      append(result_.grid, measure(paged, budgets));
    }
    for (const std::int64_t batch : plan_.batches) {
      AttentionShape many = shape(plan_.batch_context);
      many.batch = static_cast<std::int32_t>(batch);
      append(result_.batches, measure(many, {plan_.budgets.front()}));
    }
    for (const std::int64_t budget : plan_.budgets) {
      if (!interrupted()) result_.crossovers.push_back(crossover(budget));
    }
    return std::move(result_);
  }

 private:
  AttentionShape shape(std::int64_t context) const {
    AttentionShape shape = plan_.shape;
    shape.context = context;
    return shape;
  }

  std::vector<AttentionRow> measure(AttentionShape shape,
                                    const std::vector<std::int64_t>& budgets) {
    if (interrupted()) return {};
    AttentionPlan plan;
    plan.shape = shape;
    plan.shape.layers = measured_layers(shape);
    plan.policy = plan_.policy;
    plan.peer = false;
    plan.repeat = plan_.repeat;
    for (const std::int64_t budget : budgets) {
      if (leaves_pages_out(budget, shape)) plan.budgets.push_back(budget);
    }
    return measure_attention(plan, probe_, workers_);
  }

  static void append(std::vector<AttentionRow>& to, const std::vector<AttentionRow>& rows) {
    to.insert(to.end(), rows.begin(), rows.end());
  }

  // Whether quest is faster at this length. Neighbours on the machine only ever slow a pass down,
  // so the fastest passes are compared.
  bool pays(Crossover& crossover, std::int64_t context) {
    const auto rows = measure(shape(context), {crossover.budget});
    if (rows.size() != 2) return false;
    crossover.trials.push_back({context, rows[0].seconds.min, rows[1].seconds.min});
    return rows[0].seconds.min < rows[1].seconds.min;
  }

  // What the sweep by length already knows: whether quest is faster at each of its lengths.
  std::vector<std::pair<std::int64_t, bool>> known(std::int64_t budget) const {
    std::vector<std::pair<std::int64_t, bool>> lengths;
    for (const AttentionRow& quest : result_.lengths) {
      if (quest.budget != budget) continue;
      for (const AttentionRow& dense : result_.lengths) {
        if (dense.engine != "dense" || dense.shape.context != quest.shape.context) continue;
        lengths.emplace_back(quest.shape.context, quest.seconds.min < dense.seconds.min);
      }
    }
    std::sort(lengths.begin(), lengths.end());
    return lengths;
  }

  std::int64_t shortest_sparse(std::int64_t budget) const {
    std::int64_t context = budget + plan_.shape.page_size;
    while (!leaves_pages_out(budget, shape(context))) context += plan_.shape.page_size;
    return context;
  }

  // Bisection between the longest length at which dense wins and the next one, to a step of a page
  // or a thirty-second of the length.
  Crossover crossover(std::int64_t budget) {
    Crossover result;
    result.budget = budget;
    std::int64_t loses = 0;
    std::int64_t wins = 0;
    for (const auto& [context, faster] : known(budget)) {
      if (!faster) {
        loses = context;
        wins = 0;
      } else if (wins == 0) {
        wins = context;
      }
    }
    if (wins == 0) return result;
    if (loses == 0) {
      loses = shortest_sparse(budget);
      if (loses >= wins || pays(result, loses)) {
        result.tokens = std::min(loses, wins);
        return result;
      }
    }
    const std::int64_t page = plan_.shape.page_size;
    while (wins - loses > std::max(page, wins / 32) && !interrupted()) {
      const std::int64_t middle = std::clamp((loses + wins) / 2 / page * page, loses + 1, wins - 1);
      (pays(result, middle) ? wins : loses) = middle;
    }
    result.tokens = wins;
    return result;
  }

  const SweepPlan& plan_;
  BandwidthProbe& probe_;
  Workers& workers_;
  SweepResult result_;
};

}  // namespace

SweepResult run_sweep(const SweepPlan& plan, BandwidthProbe& probe, Workers& workers) {
  return Sweep(plan, probe, workers).run();
}

}  // namespace quest::cli
