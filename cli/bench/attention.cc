// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "bench/attention.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <utility>

#include "bench/ggml_attention.h"
#include "bench/paged_attention.h"
#include "bench/probe.h"
#include "bench/workers.h"
#include "interrupt.h"
#include "quest/error.h"

namespace quest::cli {
namespace {

/// One engine in the round.
class Arm {
 public:
  explicit Arm(AttentionRow row) : row_(std::move(row)) {}
  virtual ~Arm() = default;
  virtual double pass() = 0;  ///< seconds of all layers
  virtual void finish() {}

  void measure() { seconds_.push_back(pass() / row_.shape.layers); }
  AttentionRow result() {
    row_.seconds = spread(seconds_);
    finish();
    return row_;
  }

 protected:
  AttentionRow row_;
  std::vector<double> seconds_;
};

constexpr double StageSeconds::*kStages[] = {&StageSeconds::append, &StageSeconds::summarise,
                                             &StageSeconds::score, &StageSeconds::select,
                                             &StageSeconds::attend};

class PagedArm final : public Arm {
 public:
  PagedArm(AttentionRow row, PagedAttention& attention, SelectionPolicy policy, Workers& workers)
      : Arm(std::move(row)), attention_(attention), policy_(std::move(policy)), workers_(workers) {}

  double pass() override {
    const PagedAttention::Pass pass = attention_.pass(policy_, workers_);
    passes_.push_back(pass.counters);
    return pass.seconds;
  }
  void finish() override {
    const auto layers = static_cast<double>(row_.shape.layers);
    row_.counters = passes_.back();
    row_.bytes = static_cast<double>(row_.counters->bytes_read()) / layers;
    row_.stages.emplace();
    for (const auto stage : kStages) {
      std::vector<double> values;
      for (const AttentionCounters& counters : passes_) {
        values.push_back(counters.seconds.*stage / layers);
      }
      *row_.stages.*stage = spread(values).median;
    }
  }

 private:
  PagedAttention& attention_;
  SelectionPolicy policy_;
  Workers& workers_;
  std::vector<AttentionCounters> passes_;
};

class GgmlArm final : public Arm {
 public:
  GgmlArm(AttentionRow row, int threads)
      : Arm(std::move(row)), attention_(row_.shape, *row_.flash_attention, threads) {
    row_.bytes = static_cast<double>(row_.shape.layer_bytes());
  }
  double pass() override { return attention_.pass(); }

  // Full attention over the same numbers: ours and llama.cpp's must agree.
  void compare(const PagedAttention& dense) {
    double greatest = 0;
    for (std::int32_t layer = 0; layer < row_.shape.layers; ++layer) {
      greatest = std::max(greatest, difference(dense.output(layer), attention_.output(layer)));
    }
    row_.difference = greatest;
    if (greatest <= attention_.tolerance()) return;
    throw Error(row_.name() + " and dense attention differ by " + std::to_string(greatest) +
                " of the largest output at context " + std::to_string(row_.shape.context) +
                ": they did not do the same work, so there is nothing to compare");
  }

 private:
  // Greatest difference of any head's output, relative to the head's largest element.
  double difference(const std::vector<float>& a, const std::vector<float>& b) const {
    if (a.size() != b.size()) return std::numeric_limits<double>::infinity();
    const auto d = static_cast<std::size_t>(row_.shape.head_dim);
    double greatest = 0;
    for (std::size_t head = 0; head < a.size(); head += d) {
      double size = 1e-30;
      double error = 0;
      for (std::size_t i = head; i < head + d; ++i) {
        size = std::max(size, std::abs(double{a[i]}));
        error = std::max(error, std::abs(double{a[i]} - b[i]));
        if (!std::isfinite(b[i])) return std::numeric_limits<double>::infinity();
      }
      greatest = std::max(greatest, error / size);
    }
    return greatest;
  }

  GgmlAttention attention_;
};

// A comparison of full attention with itself must not pass for a result.
void check_really_sparse(const AttentionRow& row) {
  if (!row.budget) return;
  const AttentionCounters& counters = *row.counters;
  if (counters.sparse_lists > 0 && counters.bytes_read() < counters.dense_bytes) return;
  throw Error("quest with budget " + std::to_string(*row.budget) + " read " +
              std::to_string(counters.bytes_read()) + " bytes at context " +
              std::to_string(row.shape.context) + ", full attention reads " +
              std::to_string(counters.dense_bytes) +
              ": nothing was left out, so there is nothing to compare");
}

std::vector<std::unique_ptr<Arm>> make_arms(const AttentionPlan& plan, PagedAttention& attention,
                                            Workers& workers) {
  std::vector<std::unique_ptr<Arm>> arms;
  AttentionRow row;
  row.shape = plan.shape;
  SelectionPolicy policy = plan.policy;
  for (const std::int64_t budget : plan.budgets) {
    row.engine = "quest";
    row.budget = policy.budget = budget;
    arms.push_back(std::make_unique<PagedArm>(row, attention, policy, workers));
  }
  row.budget.reset();
  policy.dense = true;
  row.engine = "dense";
  if (plan.dense) arms.push_back(std::make_unique<PagedArm>(row, attention, policy, workers));
  row.engine = "llama.cpp";
  for (const bool flash : {true, false}) {
    if (!plan.peer || !GgmlAttention::available(plan.shape.kv, flash)) continue;
    row.flash_attention = flash;
    auto arm = std::make_unique<GgmlArm>(row, workers.size());
    attention.pass(policy, workers);
    arm->pass();
    arm->compare(attention);
    arms.push_back(std::move(arm));
  }
  return arms;
}

}  // namespace

std::string AttentionRow::name() const {
  if (flash_attention) return engine + (*flash_attention ? " (flash)" : " (plain)");
  return budget ? engine + " " + std::to_string(*budget) : engine;
}

bool leaves_pages_out(std::int64_t budget, const AttentionShape& shape) {
  const std::int64_t pages = (shape.context - 1) / shape.page_size + 1;
  const std::int64_t selected = budget / shape.page_size;
  const CacheShape cache = shape.cache();
  return selected < pages && selected * 2 * cache.page_bytes() + pages * cache.summary_bytes() <
                                 pages * 2 * cache.page_bytes();
}

std::vector<AttentionRow> measure_attention(const AttentionPlan& plan, BandwidthProbe& probe,
                                            Workers& workers) {
  PagedAttention attention(plan.shape);
  const auto arms = make_arms(plan, attention, workers);
  for (const auto& arm : arms) arm->pass();
  for (std::int32_t round = 0; round < plan.repeat; ++round) {
    for (const auto& arm : arms) {
      if (interrupted()) return {};
      probe.pass();
      arm->measure();
    }
  }
  std::vector<AttentionRow> rows;
  for (const auto& arm : arms) {
    rows.push_back(arm->result());
    check_really_sparse(rows.back());
  }
  return rows;
}

Json attention_fields(const AttentionRow& row, double read_bandwidth) {
  Json json = {{"engine", row.engine},
               {"context", row.shape.context},
               {"budget", row.budget ? Json(*row.budget) : Json(nullptr)},
               {"batch", row.shape.batch},
               {"page_size", row.shape.page_size},
               {"q_heads", row.shape.q_heads},
               {"kv_heads", row.shape.kv_heads},
               {"head_dim", row.shape.head_dim},
               {"kv", std::string(name_of(row.shape.kv))},
               {"summary", std::string(name_of(row.shape.summary))},
               {"layers", row.shape.layers},
               {"seconds", row.seconds.median},
               {"seconds_min", row.seconds.min},
               {"seconds_max", row.seconds.max},
               {"bytes", row.bytes},
               {"bandwidth_share", row.bytes / row.seconds.median / read_bandwidth},
               {"bandwidth_share_best", row.bytes / row.seconds.min / read_bandwidth}};
  if (row.flash_attention) json["flash_attention"] = *row.flash_attention;
  if (row.difference) json["max_relative_difference"] = *row.difference;
  if (!row.stages) return json;
  const auto layer_bytes = [&](std::int64_t bytes) {
    return static_cast<double>(bytes) / row.shape.layers;
  };
  json["bytes_dense"] = layer_bytes(row.counters->dense_bytes);
  json["bytes_read"] = {{"k", layer_bytes(row.counters->k_bytes)},
                        {"v", layer_bytes(row.counters->v_bytes)},
                        {"summaries", layer_bytes(row.counters->summary_bytes)}};
  json["stages"] = {{"append", row.stages->append},
                    {"summarise", row.stages->summarise},
                    {"score", row.stages->score},
                    {"select", row.stages->select},
                    {"attend", row.stages->attend}};
  return json;
}

Json attention_ratios(const std::vector<AttentionRow>& rows, double read_bandwidth) {
  Json ratios = Json::array();
  for (const AttentionRow& quest : rows) {
    if (!quest.budget) continue;
    const AttentionRow* dense = nullptr;
    const AttentionRow* peer = nullptr;
    for (const AttentionRow& other : rows) {
      if (other.shape.context != quest.shape.context || other.shape.batch != quest.shape.batch ||
          other.shape.page_size != quest.shape.page_size) {
        continue;
      }
      if (other.engine == "dense") dense = &other;
      if (other.engine != "llama.cpp") continue;
      if (peer == nullptr || other.seconds.median < peer->seconds.median) peer = &other;
    }
    const auto over = [&](const AttentionRow* other) {
      return other == nullptr ? Json(nullptr) : Json(other->seconds.median / quest.seconds.median);
    };
    ratios.push_back(
        {{"context", quest.shape.context},
         {"batch", quest.shape.batch},
         {"page_size", quest.shape.page_size},
         {"budget", *quest.budget},
         {"speedup_over_dense", over(dense)},
         {"speedup_over_llama_cpp", over(peer)},
         {"dense_bandwidth_share",
          dense == nullptr ? Json(nullptr)
                           : Json(dense->bytes / dense->seconds.median / read_bandwidth)}});
  }
  return ratios;
}

}  // namespace quest::cli
