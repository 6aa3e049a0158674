// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "quest/attention.h"
#include "quest/team.h"

namespace quest::test {

/// Runs body(team, thread) on a team of `threads`, this thread included.
inline void run_team(int threads, const std::function<void(Team&, int)>& body) {
  Team team(threads);
  std::vector<std::thread> others;
  for (int t = 1; t < threads; ++t) others.emplace_back([&, t] { body(team, t); });
  body(team, 0);
  for (std::thread& other : others) other.join();
}

/// How many tokens a request has before the step, how many rows it brings, and how it reads.
struct Request {
  std::int64_t history = 0;
  std::int32_t rows = 1;
  bool sparse = true;
};

/// Values for queries, keys and values. Integers keep every score exact, and so does
/// kFewChannels (sixteenths), where only one number of each 64 is not 0: bounds are close there and
/// logits far apart.
enum class Values { kUniform, kIntegers, kFewChannels };

inline std::vector<float> random_values(std::size_t count, std::uint32_t seed, Values kind) {
  std::mt19937 random(seed);
  std::vector<float> values(count);
  std::uniform_real_distribution<float> uniform(-1.0F, 1.0F);
  std::uniform_int_distribution<int> integers(-4, 4);
  for (std::size_t i = 0; i < count; ++i) {
    switch (kind) {
      case Values::kUniform:
        values[i] = uniform(random);
        break;
      case Values::kIntegers:
        values[i] = static_cast<float>(integers(random));
        break;
      case Values::kFewChannels:
        values[i] = i % 64 == 0 ? std::round(100 * uniform(random)) / 16 : 0;
        break;
    }
  }
  return values;
}

/// One layer's input and output for all rows of a batch.
struct LayerData {
  std::vector<float> q;
  std::vector<float> k;
  std::vector<float> v;
  std::vector<float> out;
  LayerInput input;

  LayerData(const CacheShape& shape, std::int32_t group, std::int32_t layer, std::int64_t rows,
            std::uint32_t seed, Values kind) {
    const std::int64_t kv = std::int64_t{shape.num_kv_heads} * shape.head_dim;
    q = random_values(static_cast<std::size_t>(rows * kv * group), seed, kind);
    k = random_values(static_cast<std::size_t>(rows * kv), seed + 1, kind);
    v = random_values(static_cast<std::size_t>(rows * kv), seed + 2, Values::kUniform);
    out.assign(q.size(), -99.0F);
    input.layer = layer;
    input.num_q_heads = shape.num_kv_heads * group;
    input.scale = 1.0F / std::sqrt(static_cast<float>(shape.head_dim));
    input.q_stride = input.out_stride = kv * group;
    input.k_stride = input.v_stride = kv;
    point();
  }
  LayerData(const LayerData&) = delete;

  void point() {
    input.q = q.data();
    input.k = k.data();
    input.v = v.data();
    input.out = out.data();
  }
};

/// A cache, its sequences and a backend: one side of a comparison. Two sides built from the same
/// arguments see the same numbers.
class Side {
 public:
  using Make = std::unique_ptr<AttentionBackend> (*)(KvCache&, SelectionPolicy);

  Side(const CacheShape& shape, std::int32_t group, const SelectionPolicy& policy, Make make,
       int threads = 1, Values kind = Values::kUniform)
      : cache(shape), backend(make(cache, policy)), group_(group), threads_(threads), kind_(kind) {}

  /// Adds a sequence whose first tokens are written to the cache without attention.
  void add(const Request& request, std::uint32_t seed) {
    const CacheShape& shape = cache.shape();
    const SequenceId id = cache.create();
    sequences.push_back(id);
    requests.push_back(request);
    if (request.history == 0) return;
    cache.reserve(id, request.history);
    for (std::int32_t layer = 0; layer < shape.num_layers; ++layer) {
      const LayerData data(shape, 1, layer, request.history, seed + 10 * layer, kind_);
      for (std::int32_t head = 0; head < shape.num_kv_heads; ++head) {
        const std::int64_t from = std::int64_t{head} * shape.head_dim;
        cache.append(layer, head, id, 0, request.history, data.input.k + from, data.input.k_stride,
                     data.input.v + from, data.input.v_stride);
        cache.summarise(layer, head, id, 0, request.history);
      }
    }
  }

  /// One step of all layers; every request brings its rows. Leaves outputs and page lists behind.
  void step(std::uint32_t seed) {
    Batch batch;
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      cache.reserve(sequences[i], requests[i].rows);
      add_request(batch, cache, sequences[i], requests[i].rows, requests[i].sparse);
    }
    run(batch, seed);
  }

  void run(const Batch& batch, std::uint32_t seed) {
    const CacheShape& shape = cache.shape();
    outputs.clear();
    selections.clear();
    backend->begin_step(batch, shape.num_kv_heads * group_, threads_);
    for (std::int32_t layer = 0; layer < shape.num_layers; ++layer) {
      LayerData data(shape, group_, layer, batch.num_rows(), seed + 100 * layer, kind_);
      if (alter) alter(data);
      run_team(threads_,
               [&](Team& team, int thread) { backend->forward(data.input, team, thread); });
      outputs.push_back(data.out);
      selections.push_back(backend->last_selection());
    }
    backend->end_step();
  }

  KvCache cache;
  std::unique_ptr<AttentionBackend> backend;
  std::vector<SequenceId> sequences;
  std::vector<Request> requests;
  std::vector<std::vector<float>> outputs;  ///< by layer
  std::vector<SelectedPages> selections;    ///< by layer
  std::function<void(LayerData&)> alter;    ///< changes a layer's input before it runs

 private:
  std::int32_t group_;
  int threads_;
  Values kind_;
};

/// Greatest difference of one head's output row, relative to the greatest value of the row.
inline double relative_error(const float* got, const float* want, std::int32_t head_dim) {
  double error = 0;
  double size = 1e-30;
  for (std::int32_t j = 0; j < head_dim; ++j) {
    if (!(std::abs(double{got[j]} - want[j]) < 1e30)) return 1e30;  // NaN or infinite
    error = std::max(error, std::abs(double{got[j]} - want[j]));
    size = std::max(size, std::abs(double{want[j]}));
  }
  return error / size;
}

inline bool equal_counts(const AttentionCounters& a, const AttentionCounters& b) {
  return a.k_bytes == b.k_bytes && a.v_bytes == b.v_bytes && a.summary_bytes == b.summary_bytes &&
         a.dense_bytes == b.dense_bytes && a.probe_bytes == b.probe_bytes &&
         a.pages_read == b.pages_read && a.sparse_lists == b.sparse_lists &&
         a.dense_lists == b.dense_lists && a.certificates.lists == b.certificates.lists &&
         a.certificates.fallbacks == b.certificates.fallbacks &&
         a.certificates.pages == b.certificates.pages;
}

/// Pages that a pool needs for these requests after `steps` steps.
inline std::int64_t pages_needed(const std::vector<Request>& requests, std::int32_t page_size,
                                 int steps = 1) {
  std::int64_t pages = 1;
  for (const Request& request : requests) {
    pages += (request.history + std::int64_t{request.rows} * steps) / page_size + 1;
  }
  return pages;
}

}  // namespace quest::test
