// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "gpu_check/correctness.h"

#include <algorithm>
#include <cstdio>
#include <sstream>
#include <string>
#include <vector>

#include "gpu_check/rows.h"
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
    text << shape.num_pages << " pages, " << name_of(shape.type) << ", summaries "
         << name_of(shape.summary_type) << ", head_dim " << shape.head_dim << ", page_size "
         << shape.page_size << ", group " << group << ", " << name_of(policy.group_mode);
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

/// The backend under test and the reference.
struct Sides {
  Sides(const Case& c, const MakeBackend& make)
      : gpu{KvCache(c.shape), nullptr}, reference{KvCache(c.shape), nullptr} {
    gpu.backend = make(gpu.cache, c.policy);
    reference.backend = make_reference_backend(reference.cache, c.policy);
  }
  Side gpu;
  Side reference;
};

/// 1e30 if the page lists of the last layer differ.
double error_between(const Sides& sides, const std::vector<float>& got,
                     const std::vector<float>& want) {
  const bool same =
      sides.gpu.backend->last_selection().pages == sides.reference.backend->last_selection().pages;
  return same ? error_between(got, want, sides.gpu.cache.shape().head_dim) : 1e30;
}

/// The worst error of the case.
double run_case(const Case& c, const MakeBackend& make) {
  Sides sides(c, make);
  Side& gpu = sides.gpu;
  Side& reference = sides.reference;
  double worst = 0;
  const auto both = [&](const auto& operation) {
    operation(reference.cache);
    return operation(gpu.cache);
  };
  const auto feed = [&](const std::vector<SequenceId>& ids, std::int32_t rows, bool sparse,
                        std::uint32_t seed) {
    const auto got = gpu.feed(ids, rows, sparse, c.group, seed);
    const auto want = reference.feed(ids, rows, sparse, c.group, seed);
    worst = std::max(worst, error_between(sides, got, want));
  };
  const std::int32_t longest = 7 * c.shape.page_size + 60;
  std::vector<SequenceId> ids;
  for (const std::int32_t length : {1, c.shape.page_size, 3 * c.shape.page_size + 1, longest}) {
    ids.push_back(both([](KvCache& cache) { return cache.create(); }));
    feed({ids.back()}, length, false, static_cast<std::uint32_t>(length));
  }
  feed(ids, 1, true, 1);
  ids.push_back(both([&](KvCache& cache) { return cache.fork(ids.back()); }));
  feed(ids, 1, true, 2);
  both([&](KvCache& cache) { return cache.truncate(ids[3], longest - 40), 0; });
  feed(ids, 3, true, 3);
  feed(ids, 1, false, 4);
  return worst;
}

/// One decoded token, then a short chunk that reads everything, after a context that is written to
/// the cache, not attended to, which would take the reference hours.
double run_long_case(const Case& c, const MakeBackend& make) {
  Sides sides(c, make);
  constexpr std::int32_t kChunk = 5;
  const std::int64_t tokens = std::int64_t{c.shape.num_pages} * c.shape.page_size - 1 - kChunk;
  SequenceId id = 0;
  for (Side* side : {&sides.gpu, &sides.reference}) {
    KvCache& cache = side->cache;
    id = cache.create();
    cache.reserve(id, tokens);
    for (std::int32_t layer = 0; layer < c.shape.num_layers; ++layer) {
      const Rows data(c.shape, c.group, tokens, static_cast<std::uint32_t>(layer));
      for (std::int32_t head = 0; head < c.shape.num_kv_heads; ++head) {
        const std::int64_t first = std::int64_t{head} * c.shape.head_dim;
        cache.append(layer, head, id, 0, tokens, data.k.data() + first, data.input.k_stride,
                     data.v.data() + first, data.input.v_stride);
        cache.summarise(layer, head, id, 0, tokens);
      }
    }
  }
  double worst = 0;
  for (const bool sparse : {true, false}) {
    const std::int32_t rows = sparse ? 1 : kChunk;
    const auto got = sides.gpu.feed({id}, rows, sparse, c.group, 9);
    const auto want = sides.reference.feed({id}, rows, sparse, c.group, 9);
    worst = std::max(worst, error_between(sides, got, want));
  }
  return worst;
}

/// Rows of so many pages that blocks share their scores, their choice and what a short chunk reads.
/// `quick`: fewer pages, of the packaged profile's mode alone, and one block chooses.
std::vector<Case> long_cases(bool quick) {
  std::vector<Case> all;
  for (const GroupMode mode :
       {GroupMode::kGroupMean, GroupMode::kGroupSoftmax, GroupMode::kPerHead, GroupMode::kQuota}) {
    if (quick && mode != GroupMode::kGroupSoftmax) continue;
    Case c;
    c.shape = {1, 1, 64, 8, KvType::kF16, quick ? 300 : 9000, SummaryType::kQ8};
    c.group = 3;
    c.policy.group_mode = mode;
    c.policy.budget = quick ? 512 : 2048;
    c.policy.dense_layers = 0;
    c.policy.crossover = 1;
    all.push_back(c);
  }
  return all;
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
        for (const SummaryType summary :
             {SummaryType::kPlain, SummaryType::kQ8, SummaryType::kQ4}) {
          Case c;
          c.shape = {2, 2, head_dim, page_size, type, 1600 / page_size + 20, summary};
          c.group = groups[(next + next / 6) % 6];  // with every type of summaries
          c.policy.group_mode = modes[next % 5];
          c.policy.budget = std::int64_t{6} * page_size;
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
  if (quick) all.resize(8);
  return all;
}

}  // namespace

nlohmann::json check_correctness(const MakeBackend& make, bool quick) {
  nlohmann::json failures = nlohmann::json::array();
  double max_error = 0;
  std::size_t count = 0;
  const auto add = [&](const Case& c, double error) {
    ++count;
    max_error = std::max(max_error, error);
    if (error <= kTolerance) return;
    std::fprintf(stderr, "FAILED: %s: error %g\n", c.name().c_str(), error);
    failures.push_back({{"case", c.name()}, {"error", error}});
  };
  for (const Case& c : cases(quick)) add(c, run_case(c, make));
  for (const Case& c : long_cases(quick)) add(c, run_long_case(c, make));
  return {{"cases", count},
          {"failed", failures.size()},
          {"max_error", max_error},
          {"tolerance", kTolerance},
          {"rows", failures}};
}

}  // namespace quest::gpu_check
