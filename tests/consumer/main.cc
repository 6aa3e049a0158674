// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
//
// What a user of the installed library writes: one layer of attention over a paged cache, no model.
// A zero query weighs all its keys alike, so each output is the mean of the values seen so far.

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <vector>

#include "quest/attention.h"
#include "quest/batch.h"
#include "quest/kv_cache.h"
#include "quest/policy.h"
#include "quest/team.h"

int main() {
  constexpr int kTokens = 20;  // one full page and a tail
  constexpr int kQueryHeads = 2;
  constexpr int kHeadDim = 64;

  quest::CacheShape shape;
  shape.num_layers = 1;
  shape.num_kv_heads = 1;
  shape.head_dim = kHeadDim;
  shape.type = quest::KvType::kF32;
  shape.num_pages = 4;
  quest::KvCache cache(shape);
  const quest::SequenceId sequence = cache.create();
  cache.reserve(sequence, kTokens);

  quest::Batch batch;
  batch.q_indptr = {0, kTokens};
  const auto pages = cache.pages(sequence);
  batch.page_indptr = {0, static_cast<std::int32_t>(pages.size())};
  batch.page_indices.assign(pages.begin(), pages.end());
  batch.last_page_len = {kTokens - shape.page_size};
  batch.sequences = {sequence};
  batch.sparse = {0};

  const std::vector<float> q(kTokens * kQueryHeads * kHeadDim, 0.0F);
  const std::vector<float> k(kTokens * kHeadDim, 1.0F);
  std::vector<float> v(kTokens * kHeadDim);
  for (int token = 0; token < kTokens; ++token) {
    for (int j = 0; j < kHeadDim; ++j) v[token * kHeadDim + j] = static_cast<float>(token + j);
  }
  std::vector<float> out(q.size(), -1.0F);

  quest::LayerInput input;
  input.num_q_heads = kQueryHeads;
  input.scale = 0.125F;
  input.q = q.data();
  input.k = k.data();
  input.v = v.data();
  input.q_stride = kQueryHeads * kHeadDim;
  input.k_stride = kHeadDim;
  input.v_stride = kHeadDim;
  input.out = out.data();
  input.out_stride = kQueryHeads * kHeadDim;

  const auto backend = quest::make_cpu_backend(cache, quest::SelectionPolicy{});
  quest::Team team(1);
  backend->begin_step(batch, kQueryHeads, team.size());
  backend->forward(input, team, 0);
  backend->end_step();

  for (int token = 0; token < kTokens; ++token) {
    for (int i = 0; i < kQueryHeads * kHeadDim; ++i) {
      const float expected = 0.5F * static_cast<float>(token) + static_cast<float>(i % kHeadDim);
      const float got = out[token * kQueryHeads * kHeadDim + i];
      if (!(std::abs(got - expected) <= 1e-4F)) {
        std::fprintf(stderr, "token %d, element %d: expected %g, got %g\n", token, i,
                     static_cast<double>(expected), static_cast<double>(got));
        return 1;
      }
    }
  }
  std::printf("attention over %d tokens in %zu pages by backend %.*s: as expected\n", kTokens,
              pages.size(), static_cast<int>(backend->name().size()), backend->name().data());
  return 0;
}
