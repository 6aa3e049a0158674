// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "attention/cpu_harness.h"
#include "quest/attention.h"
#include "quest/eval/baseline.h"
#include "quest/kv_cache.h"

namespace quest::testing {

/// Queries, keys and values of every token of one sequence, for any layer: drawn from its seed, the
/// same numbers for the code under test and for what the test works out by itself.
struct ToyTensors {
  std::int32_t layers = 2;
  std::int32_t kv_heads = 2;
  std::int32_t group = 2;
  std::int32_t head_dim = 64;
  std::vector<std::vector<float>> q;  ///< [layers][tokens, kv_heads * group, head_dim]
  std::vector<std::vector<float>> k;  ///< [layers][tokens, kv_heads, head_dim]
  std::vector<std::vector<float>> v;

  ToyTensors(std::int64_t tokens, std::uint32_t seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    const auto draw = [&](std::int64_t count, float size) {
      std::vector<float> values(static_cast<std::size_t>(count));
      for (float& x : values) x = size * normal(random);
      return values;
    };
    const std::int64_t row = std::int64_t{kv_heads} * head_dim;
    for (std::int32_t layer = 0; layer < layers; ++layer) {
      q.push_back(draw(tokens * row * group, 2));  // pointed attention, so that choices matter
      k.push_back(draw(tokens * row, 1));
      v.push_back(draw(tokens * row, 1));
    }
  }

  double scale() const { return 1 / std::sqrt(double{64}); }

  double logit(std::int32_t layer, std::int64_t row, std::int32_t q_head,
               std::int64_t token) const {
    const auto d = static_cast<std::size_t>(head_dim);
    const float* a = &q[layer][(row * kv_heads * group + q_head) * d];
    const float* b = &k[layer][(token * kv_heads + q_head / group) * d];
    double dot = 0;
    for (std::size_t j = 0; j < d; ++j) dot += double{a[j]} * b[j];
    return dot * scale();
  }

  /// Attention weights of the listed tokens.
  std::vector<double> weights(std::int32_t layer, std::int64_t row, std::int32_t q_head,
                              const std::vector<std::int64_t>& tokens) const {
    std::vector<double> result;
    double sum = 0;
    for (const std::int64_t token : tokens) {
      result.push_back(std::exp(logit(layer, row, q_head, token)));
      sum += result.back();
    }
    for (double& weight : result) weight /= sum;
    return result;
  }

  std::vector<double> attention(std::int32_t layer, std::int64_t row, std::int32_t q_head,
                                const std::vector<std::int64_t>& tokens) const {
    const std::vector<double> w = weights(layer, row, q_head, tokens);
    std::vector<double> out(static_cast<std::size_t>(head_dim), 0);
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      for (std::int32_t j = 0; j < head_dim; ++j) {
        out[j] += w[i] * v[layer][(tokens[i] * kv_heads + q_head / group) * head_dim + j];
      }
    }
    return out;
  }
};

/// A cache, a backend and one sequence at a time that reads the tensors' tokens in order.
class ToySequence {
 public:
  ToySequence(const ToyTensors& tensors, const SelectionPolicy& policy,
              const AttentionFactory& attention, KvType type = KvType::kF32, int threads = 1)
      : tensors_(tensors), threads_(threads) {
    CacheShape shape;
    shape.num_layers = tensors.layers;
    shape.num_kv_heads = tensors.kv_heads;
    shape.head_dim = tensors.head_dim;
    shape.type = type;
    shape.num_pages = 64;
    cache = std::make_unique<KvCache>(shape);
    backend = attention(*cache, policy);
    sequence = cache->create();
  }

  /// The next `count` tokens; what every layer gave is in `out` and `lists`.
  void read(std::int32_t count, bool sparse) {
    const std::int64_t first = cache->length(sequence);
    cache->reserve(sequence, count);
    Batch batch;
    add_request(batch, *cache, sequence, count, sparse);
    const std::int64_t kv_row = std::int64_t{tensors_.kv_heads} * tensors_.head_dim;
    const std::int64_t q_row = kv_row * tensors_.group;
    out.clear();
    lists.clear();
    backend->begin_step(batch, tensors_.kv_heads * tensors_.group, threads_);
    for (std::int32_t layer = 0; layer < tensors_.layers; ++layer) {
      std::vector<float> result(static_cast<std::size_t>(count * q_row), -99.0F);
      LayerInput input;
      input.layer = layer;
      input.num_q_heads = tensors_.kv_heads * tensors_.group;
      input.scale = static_cast<float>(tensors_.scale());
      input.q = tensors_.q[layer].data() + first * q_row;
      input.k = tensors_.k[layer].data() + first * kv_row;
      input.v = tensors_.v[layer].data() + first * kv_row;
      input.q_stride = input.out_stride = q_row;
      input.k_stride = input.v_stride = kv_row;
      input.out = result.data();
      test::run_team(threads_,
                     [&](Team& team, int thread) { backend->forward(input, team, thread); });
      out.push_back(std::move(result));
      lists.push_back(backend->last_selection());
    }
    backend->end_step();
  }

  /// Pages of row `row` of the last step.
  std::vector<std::int32_t> pages(std::int32_t layer, std::int32_t row, std::int32_t head) const {
    const SelectedPages& all = lists[layer];
    const std::size_t i = static_cast<std::size_t>(row) * tensors_.kv_heads + head;
    return {all.pages.begin() + all.indptr[i], all.pages.begin() + all.indptr[i + 1]};
  }
  const float* output(std::int32_t layer, std::int32_t row, std::int32_t q_head) const {
    return out[layer].data() +
           (std::int64_t{row} * tensors_.kv_heads * tensors_.group + q_head) * tensors_.head_dim;
  }

  std::unique_ptr<KvCache> cache;
  std::unique_ptr<AttentionBackend> backend;
  SequenceId sequence = 0;
  std::vector<std::vector<float>> out;  ///< [layers][rows, q heads, head_dim]
  std::vector<SelectedPages> lists;     ///< [layers]

 private:
  const ToyTensors& tensors_;
  const int threads_;
};

}  // namespace quest::testing
