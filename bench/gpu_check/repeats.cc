// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "gpu_check/repeats.h"

#include <algorithm>
#include <vector>

#include "attention/cuda/device_step.h"
#include "gpu_check/device_input.h"
#include "gpu_check/rows.h"

namespace quest::gpu_check {

namespace {

constexpr std::int32_t kGroup = 4;
constexpr std::int32_t kPageSize = 8;
/// Pages after which the keys repeat, so that every score occurs many times.
constexpr std::int64_t kDistinctPages = 97;

/// A sequence of `tokens` tokens, the same few pages over and over.
SequenceId fill(KvCache& cache, std::int64_t tokens) {
  const SequenceId id = cache.create();
  cache.reserve(id, tokens);
  const Rows data(cache.shape(), 1, kDistinctPages * kPageSize, 1);
  for (std::int64_t first = 0; first < tokens; first += kDistinctPages * kPageSize) {
    const std::int64_t count = std::min(tokens - first, kDistinctPages * kPageSize);
    cache.append(0, 0, id, first, count, data.input.k, data.input.k_stride, data.input.v,
                 data.input.v_stride);
    cache.summarise(0, 0, id, first, count);
  }
  return id;
}

SelectionPolicy policy() {
  SelectionPolicy policy;
  policy.budget = 1024;
  policy.dense_layers = 0;
  policy.group_mode = GroupMode::kPerHead;
  policy.crossover = 1;
  return policy;
}

/// What a run leaves behind.
struct Outcome {
  std::vector<std::int32_t> pages;
  std::vector<float> out;

  bool operator==(const Outcome&) const = default;
};

}  // namespace

nlohmann::json check_repeats(cuda::Device& device, const RepeatedStep& repeated) {
  const CacheShape shape{1,
                         1,
                         64,
                         kPageSize,
                         KvType::kF16,
                         std::int64_t{repeated.pages} + repeated.rows,
                         SummaryType::kQ8};
  KvCache cache(shape);
  cuda::Tuning tuning;
  tuning.timed = false;
  cuda::DeviceStep step(cache, device, tuning);
  step.set_policy(policy());

  // One history, and a tail page of its own for every row.
  std::vector<SequenceId> ids{fill(cache, std::int64_t{repeated.pages} * kPageSize - 4)};
  while (static_cast<std::int32_t>(ids.size()) < repeated.rows) ids.push_back(cache.fork(ids[0]));
  Batch batch;
  for (const SequenceId id : ids) {
    cache.reserve(id, 1);
    add_request(batch, cache, id, 1, true);
  }
  const Rows rows(shape, kGroup, repeated.rows, 2);
  DeviceInput input(device, shape, kGroup, repeated.rows);
  input.set(rows);

  step.begin(batch, kGroup);
  Outcome first;
  int compared = 0;
  int failed = 0;
  for (int i = 0; i < repeated.repeats; ++i) {
    step.run(0, input.rows, rows.input.scale);
    if (i % repeated.compared_every != 0) continue;
    Outcome now{step.last_selection().pages, std::vector<float>(rows.out.size())};
    device.download(now.out.data(), input.rows.out,
                    static_cast<std::int64_t>(now.out.size() * sizeof(float)));
    if (i == 0) {
      first = std::move(now);
      continue;
    }
    ++compared;
    if (!(now == first)) ++failed;
  }
  AttentionCounters counters;
  step.finish(counters);
  return {{"repeats", repeated.repeats}, {"compared", compared}, {"failed", failed}};
}

}  // namespace quest::gpu_check
