// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "bench/paged_attention.h"

#include <algorithm>
#include <cmath>

#include "bench/workers.h"

namespace quest::cli {

PagedAttention::PagedAttention(const AttentionShape& shape) : shape_(shape), cache_(shape.cache()) {
  const auto width = static_cast<std::size_t>(std::int64_t{shape.batch} * shape.head_dim);
  const auto q_size = width * static_cast<std::size_t>(shape.q_heads);
  const auto kv_size = width * static_cast<std::size_t>(shape.kv_heads);
  for (std::int32_t layer = 0; layer < shape.layers; ++layer) {
    layers_.push_back({std::vector<float>(q_size), std::vector<float>(kv_size),
                       std::vector<float>(kv_size), std::vector<float>(q_size)});
  }
  for (std::int32_t s = 0; s < shape.batch; ++s) {
    sequences_.push_back(cache_.create());
    cache_.reserve(sequences_.back(), shape.context);
    for (std::int32_t layer = 0; layer < shape.layers; ++layer) fill(layer, s);
    add_request(dense_, cache_, sequences_.back(), 1, false);
    add_request(sparse_, cache_, sequences_.back(), 1, true);
  }
  SelectionPolicy dense;
  dense.dense = true;
  backend_ = make_cpu_backend(cache_, dense);
}

void PagedAttention::fill(std::int32_t layer, std::int32_t sequence) {
  Layer& to = layers_[static_cast<std::size_t>(layer)];
  const std::int64_t d = shape_.head_dim;
  const SequenceId id = sequences_[static_cast<std::size_t>(sequence)];
  for (std::int32_t head = 0; head < shape_.kv_heads; ++head) {
    const auto rows = [&](Part part) {
      return synthetic_rows(shape_, part, layer, sequence, head, shape_.context);
    };
    const std::vector<float> k = rows(Part::kKey);
    const std::vector<float> v = rows(Part::kValue);
    cache_.append(layer, head, id, 0, shape_.context, k.data(), d, v.data(), d);
    cache_.summarise(layer, head, id, 0, shape_.context);
    // Each pass appends the newest token again, which changes nothing.
    const std::int64_t place = (std::int64_t{sequence} * shape_.kv_heads + head) * d;
    std::copy(k.end() - d, k.end(), to.k.begin() + place);
    std::copy(v.end() - d, v.end(), to.v.begin() + place);
  }
  const std::vector<float> q =
      synthetic_rows(shape_, Part::kQuery, layer, sequence, 0, shape_.q_heads);
  std::copy(q.begin(), q.end(), to.q.begin() + std::int64_t{sequence} * shape_.q_heads * d);
}

LayerInput PagedAttention::input(std::int32_t layer) {
  Layer& from = layers_[static_cast<std::size_t>(layer)];
  LayerInput input;
  input.layer = layer;
  input.num_q_heads = shape_.q_heads;
  input.scale = 1.0F / std::sqrt(static_cast<float>(shape_.head_dim));
  input.q = from.q.data();
  input.k = from.k.data();
  input.v = from.v.data();
  input.out = from.out.data();
  input.q_stride = input.out_stride = std::int64_t{shape_.q_heads} * shape_.head_dim;
  input.k_stride = input.v_stride = std::int64_t{shape_.kv_heads} * shape_.head_dim;
  return input;
}

PagedAttention::Pass PagedAttention::pass(const SelectionPolicy& policy, Workers& workers) {
  backend_->set_policy(policy);
  backend_->reset_counters();
  backend_->begin_step(policy.dense ? dense_ : sparse_, shape_.q_heads, workers.size());
  Pass result;
  result.seconds = workers.run([&](Team& team, int thread) {
    for (std::int32_t layer = 0; layer < shape_.layers; ++layer) {
      backend_->forward(input(layer), team, thread);
      team.wait();
    }
  });
  backend_->end_step();
  result.counters = backend_->counters();
  return result;
}

const std::vector<float>& PagedAttention::output(std::int32_t layer) const {
  return layers_[static_cast<std::size_t>(layer)].out;
}

}  // namespace quest::cli
