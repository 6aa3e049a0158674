// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "gpu_check/correctness.h"

#include <algorithm>
#include <cstdio>
#include <sstream>
#include <string>
#include <vector>

#include "gpu_check/rows.h"
#include "quest/cuda.h"
#include "quest/error.h"
#include "quest/team.h"

namespace quest::gpu_check {

namespace {

/// Greatest difference of a head's output, relative to its greatest value. Both sides read the same
/// rounded keys and values; what differs is the order of float32 sums.
constexpr double kTolerance = 1e-4;

struct Case {
  CacheShape shape;
  std::int32_t group = 1;
  SelectionPolicy policy;

  std::string name() const {
    std::ostringstream text;
    text << name_of(shape.type) << ", summaries " << name_of(shape.summary_type) << ", head_dim "
         << shape.head_dim << ", page_size " << shape.page_size << ", group " << group << ", "
         << name_of(policy.group_mode);
    return text.str();
  }
};

/// One backend with its cache.
struct Side {
  KvCache cache;
  std::unique_ptr<AttentionBackend> backend;

  /// Appends `rows` tokens to every sequence and attends, all layers. Returns the last output.
  std::vector<float> feed(const std::vector<SequenceId>& ids, std::int32_t rows, bool sparse,
                          std::int32_t group, std::uint32_t seed) {
    const CacheShape& shape = cache.shape();
    Batch batch;
    for (const SequenceId id : ids) {
      cache.reserve(id, rows);
      add_request(batch, cache, id, rows, sparse);
    }
    backend->begin_step(batch, shape.num_kv_heads * group, 1);
    std::vector<float> out;
    Team team(1);
    for (std::int32_t layer = 0; layer < shape.num_layers; ++layer) {
      Rows data(shape, group, batch.num_rows(), seed + static_cast<std::uint32_t>(layer));
      data.input.layer = layer;
      backend->forward(data.input, team, 0);
      out = data.out;
    }
    backend->end_step();
    return out;
  }
};

double error_between(const std::vector<float>& got, const std::vector<float>& want,
                     std::int64_t head_dim) {
  double worst = 0;
  for (std::size_t i = 0; i < got.size(); i += static_cast<std::size_t>(head_dim)) {
    double error = 0;
    double size = 1e-30;
    for (std::size_t j = i; j < i + static_cast<std::size_t>(head_dim); ++j) {
      const double difference = std::abs(double{got[j]} - want[j]);
      error = std::max(error, difference < 1e30 ? difference : 1e30);  // NaN too
      size = std::max(size, std::abs(double{want[j]}));
    }
    worst = std::max(worst, error / size);
  }
  return worst;
}

/// The worst error of the case; 1e30 if the page lists differ.
double run_case(const Case& c, int device) {
  Side gpu{KvCache(c.shape), nullptr};
  Side reference{KvCache(c.shape), nullptr};
  gpu.backend = make_cuda_backend(gpu.cache, c.policy, device);
  reference.backend = make_reference_backend(reference.cache, c.policy);
  double worst = 0;
  const auto both = [&](const auto& operation) {
    operation(reference.cache);
    return operation(gpu.cache);
  };
  const auto feed = [&](const std::vector<SequenceId>& ids, std::int32_t rows, bool sparse,
                        std::uint32_t seed) {
    const auto got = gpu.feed(ids, rows, sparse, c.group, seed);
    const auto want = reference.feed(ids, rows, sparse, c.group, seed);
    const bool same =
        gpu.backend->last_selection().pages == reference.backend->last_selection().pages;
    worst = std::max(worst, same ? error_between(got, want, c.shape.head_dim) : 1e30);
  };
  std::vector<SequenceId> ids;
  for (const std::int32_t length : {1, c.shape.page_size, 3 * c.shape.page_size + 1, 700}) {
    ids.push_back(both([](KvCache& cache) { return cache.create(); }));
    feed({ids.back()}, length, false, static_cast<std::uint32_t>(length));
  }
  feed(ids, 1, true, 1);
  ids.push_back(both([&](KvCache& cache) { return cache.fork(ids.back()); }));
  feed(ids, 1, true, 2);
  both([&](KvCache& cache) { return cache.truncate(ids[3], 650), 0; });
  feed(ids, 3, true, 3);
  feed(ids, 1, false, 4);
  return worst;
}

std::vector<Case> cases(bool quick) {
  std::vector<Case> all;
  const std::int32_t groups[] = {1, 2, 4, 8, 16, 3};
  const GroupMode modes[] = {GroupMode::kGroupMean, GroupMode::kGroupMax, GroupMode::kPerHead,
                             GroupMode::kGroupSoftmax, GroupMode::kQuota};
  std::size_t next = 0;
  for (const std::int32_t head_dim : {64, 128, 256}) {
    for (const std::int32_t page_size : {8, 16, 32, 64}) {
      for (const KvType type : {KvType::kF16, KvType::kBF16}) {
        for (const SummaryType summary : {SummaryType::kPlain, SummaryType::kQ8}) {
          Case c;
          c.shape = {2, 2, head_dim, page_size, type, 1600 / page_size + 20, summary};
          c.group = groups[next % 6];
          c.policy.group_mode = modes[next % 5];
          c.policy.budget = 6 * page_size;
          c.policy.sinks = 4;
          c.policy.window = 20;
          c.policy.beta = 0.5F;
          c.policy.dense_layers = 1;
          c.policy.crossover = 1;
          all.push_back(c);
          ++next;
        }
      }
    }
  }
  if (quick) all.resize(6);
  return all;
}

}  // namespace

nlohmann::json check_correctness(int device, bool quick) {
  nlohmann::json failures = nlohmann::json::array();
  double max_error = 0;
  const std::vector<Case> all = cases(quick);
  for (const Case& c : all) {
    const double error = run_case(c, device);
    max_error = std::max(max_error, error);
    if (error <= kTolerance) continue;
    std::fprintf(stderr, "FAILED: %s: error %g\n", c.name().c_str(), error);
    failures.push_back({{"case", c.name()}, {"error", error}});
  }
  return {{"cases", all.size()},
          {"failed", failures.size()},
          {"max_error", max_error},
          {"tolerance", kTolerance},
          {"rows", failures}};
}

}  // namespace quest::gpu_check
