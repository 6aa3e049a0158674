// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "gpu_check/tables.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "attention/cuda/cuda_device.h"
#include "attention/cuda/device_step.h"
#include "gpu_check/device_input.h"
#include "gpu_check/gpu.h"
#include "gpu_check/rows.h"
#include "quest/error.h"

namespace quest::gpu_check {

namespace {

constexpr std::int32_t kHeadDim = 128;
constexpr std::int32_t kPageSize = 16;

SelectionPolicy policy_of(std::int64_t budget) {
  SelectionPolicy policy;
  policy.budget = budget;
  policy.sinks = 16;
  policy.window = 64;
  policy.dense_layers = 0;
  policy.group_mode = GroupMode::kGroupMean;
  policy.beta = 0.5F;
  policy.crossover = 1;
  return policy;
}

/// Query and KV heads of a model.
struct Heads {
  std::int32_t q = 32;
  std::int32_t kv = 32;
};

/// A cache of `batch` sequences of `context` tokens whose pages are full of random numbers.
class FilledCache {
 public:
  FilledCache(const CacheShape& shape, std::int64_t context, std::int32_t batch, int device)
      : cache(shape), gpu(cuda::open_device(device)), step(cache, *gpu, {}) {
    for (std::int32_t i = 0; i < batch; ++i) {
      sequences.push_back(cache.create());
      cache.reserve(sequences.back(), context);
    }
    const cuda::LayerPool pool = step.pool().layer(0);
    const std::int64_t elements = shape.num_pages * shape.num_kv_heads * shape.page_elements();
    fill_random(stream(), pool.k, elements);
    fill_random(stream(), pool.v, elements);
    std::vector<cuda::TouchedPage> pages;
    for (std::int32_t page = 0; page < shape.num_pages; ++page)
      pages.push_back({page, shape.page_size});
    step.pool().summarise(pages);
  }

  cudaStream_t stream() { return static_cast<cudaStream_t>(cuda::stream_of(*gpu)); }
  Batch batch(bool sparse) const {
    Batch batch;
    for (const SequenceId id : sequences) add_request(batch, cache, id, 1, sparse);
    return batch;
  }

  KvCache cache;
  std::unique_ptr<cuda::Device> gpu;
  cuda::DeviceStep step;
  std::vector<SequenceId> sequences;
};

/// Time and traffic of one layer of decode.
struct Measurement {
  StageSeconds stages;
  double seconds = 0;  ///< of the replayed graph
  double bytes = 0;
  double summary_bytes = 0;  ///< of which score reads
  double kv_bytes = 0;       ///< of which attend reads
};

Measurement measure(FilledCache& filled, const DeviceInput& input, std::int32_t q_heads,
                    bool sparse) {
  constexpr int kRuns = 20;
  const Batch batch = filled.batch(sparse);
  const float scale = 0.0884F;  // 1 / sqrt(128)
  Measurement result;
  AttentionCounters counters;
  for (int round = 0; round < 2; ++round) {  // the first warms up
    counters = {};
    filled.step.time_stages(true);
    filled.step.begin(batch, q_heads);
    for (int i = 0; i < kRuns; ++i) filled.step.run(0, input.rows, scale);
    filled.step.finish(counters);
  }
  for (double StageSeconds::*stage :
       {&StageSeconds::append, &StageSeconds::summarise, &StageSeconds::score,
        &StageSeconds::select, &StageSeconds::attend}) {
    result.stages.*stage = counters.seconds.*stage / kRuns;
  }
  result.bytes = static_cast<double>(counters.bytes_read()) / kRuns;
  result.summary_bytes = static_cast<double>(counters.summary_bytes) / kRuns;
  result.kv_bytes = static_cast<double>(counters.k_bytes + counters.v_bytes) / kRuns;

  filled.step.time_stages(false);
  filled.step.begin(batch, q_heads);
  Graph graph(filled.stream(), [&] { filled.step.run(0, input.rows, scale); });
  result.seconds = graph.seconds(kRuns);
  return result;
}

nlohmann::json row_of(const char* engine, const Measurement& m, double bandwidth) {
  constexpr double kMicro = 1e6;
  const auto share = [&](double bytes, double seconds) {
    return seconds > 0 ? bytes / seconds / bandwidth : 0.0;
  };
  return {{"engine", engine},
          {"seconds", m.seconds},
          {"bytes", m.bytes},
          {"bytes_per_second", m.bytes / m.seconds},
          {"bandwidth_share", m.bytes / m.seconds / bandwidth},
          {"stage_bandwidth_share",
           {{"score", share(m.summary_bytes, m.stages.score)},
            {"attend", share(m.kv_bytes, m.stages.attend)}}},
          {"stage_microseconds",
           {{"append", m.stages.append * kMicro},
            {"summarise", m.stages.summarise * kMicro},
            {"score", m.stages.score * kMicro},
            {"select", m.stages.select * kMicro},
            {"attend", m.stages.attend * kMicro}}}};
}

/// All budgets of one cache.
void measure_cache(int device, const Heads& heads, std::int64_t context, std::int32_t batch,
                   const std::vector<std::int64_t>& budgets, double bandwidth,
                   nlohmann::json& rows) {
  const CacheShape shape{1,
                         heads.kv,
                         kHeadDim,
                         kPageSize,
                         KvType::kF16,
                         (context + kPageSize - 1) / kPageSize * batch,
                         SummaryType::kQ8};
  FilledCache filled(shape, context, batch, device);
  const std::int32_t group = heads.q / heads.kv;
  DeviceInput input(*filled.gpu, shape, group, batch);
  input.set(Rows(shape, group, batch, 7));
  const auto add = [&](const char* engine, std::int64_t budget, const Measurement& m,
                       double dense_seconds) {
    nlohmann::json row = row_of(engine, m, bandwidth);
    row.update({{"context", context},
                {"budget", budget},
                {"batch", batch},
                {"q_heads", heads.q},
                {"kv_heads", heads.kv},
                {"head_dim", kHeadDim},
                {"kv", "f16"},
                {"speedup", dense_seconds / m.seconds}});
    rows.push_back(row);
    std::fprintf(
        stderr, "%-5s %2d/%-2d heads batch %2d context %6lld budget %4lld: %8.1f us %5.1f %%\n",
        engine, heads.q, heads.kv, batch, static_cast<long long>(context),
        static_cast<long long>(budget), m.seconds * 1e6, 100 * m.bytes / m.seconds / bandwidth);
  };
  filled.step.set_policy(policy_of(context));
  const Measurement dense = measure(filled, input, heads.q, false);
  add("dense", context, dense, dense.seconds);
  for (const std::int64_t budget : budgets) {
    if (budget >= context) continue;
    filled.step.set_policy(policy_of(budget));
    add("quest", budget, measure(filled, input, heads.q, true), dense.seconds);
  }
}

}  // namespace

nlohmann::json check_graph(int device) {
  constexpr std::int32_t kBatch = 3;
  constexpr std::int32_t kGroup = 4;
  const CacheShape shape{1, 2, kHeadDim, kPageSize, KvType::kF16, 400, SummaryType::kQ8};
  KvCache caches[2] = {KvCache(shape), KvCache(shape)};
  const auto replayed_gpu = cuda::open_device(device);
  const auto plain_gpu = cuda::open_device(device);
  cuda::Tuning tuning;
  tuning.timed = false;
  cuda::DeviceStep replayed(caches[0], *replayed_gpu, tuning);
  cuda::DeviceStep plain(caches[1], *plain_gpu, tuning);
  DeviceInput inputs[2] = {{*replayed_gpu, shape, kGroup, kBatch},
                           {*plain_gpu, shape, kGroup, kBatch}};
  std::vector<SequenceId> ids;
  for (int i = 0; i < kBatch; ++i) ids.push_back((caches[0].create(), caches[1].create()));
  replayed.set_policy(policy_of(256));
  plain.set_policy(policy_of(256));

  // The first steps grow the pages that the launches allow for; then one is captured.
  std::unique_ptr<Graph> graph;
  double max_error = 0;
  int replays = 0;
  int failed = 0;
  constexpr int kSteps = 1200;
  constexpr int kCapturedAt = 1100;
  for (int i = 0; i < kSteps; ++i) {
    const Rows rows(shape, kGroup, kBatch, static_cast<std::uint32_t>(i));
    for (int side = 0; side < 2; ++side) {
      cuda::DeviceStep& step = side == 0 ? replayed : plain;
      Batch batch;
      for (const SequenceId id : ids) {
        caches[side].reserve(id, 1);
        add_request(batch, caches[side], id, 1, true);
      }
      inputs[side].set(rows);
      step.begin(batch, shape.num_kv_heads * kGroup);
      const auto run = [&] { step.run(0, inputs[side].rows, rows.input.scale); };
      if (side == 0 && i == kCapturedAt) {
        graph =
            std::make_unique<Graph>(static_cast<cudaStream_t>(cuda::stream_of(*replayed_gpu)), run);
      }
      if (side == 0 && graph) {
        graph->replay();
      } else {
        run();
      }
      AttentionCounters counters;
      step.finish(counters);
    }
    if (!graph) continue;
    ++replays;
    std::vector<float> got(rows.out.size());
    std::vector<float> want(rows.out.size());
    const auto bytes = static_cast<std::int64_t>(got.size() * sizeof(float));
    replayed_gpu->download(got.data(), inputs[0].rows.out, bytes);
    plain_gpu->download(want.data(), inputs[1].rows.out, bytes);
    double error = 0;
    for (std::size_t j = 0; j < got.size(); ++j) {
      const double difference = std::abs(double{got[j]} - want[j]);
      error = std::max(error, difference < 1e30 ? difference : 1e30);
    }
    max_error = std::max(max_error, error);
    if (error > 1e-5) ++failed;
  }
  return {{"replays", replays}, {"failed", failed}, {"max_error", max_error}};
}

nlohmann::json measure_tables(int device, double seconds) {
  const auto start = std::chrono::steady_clock::now();
  const auto gpu = cuda::open_device(device);
  const double bandwidth = copy_bandwidth(static_cast<cudaStream_t>(cuda::stream_of(*gpu)));
  nlohmann::json rows = nlohmann::json::array();
  nlohmann::json skipped = nlohmann::json::array();
  for (const std::int64_t context : {32768, 2048, 8192, 131072, 262144}) {
    for (const std::int32_t batch : {1, 8, 64}) {
      for (const Heads& heads : {Heads{32, 32}, Heads{32, 8}, Heads{64, 8}}) {
        const std::int64_t kv_bytes = context * batch * heads.kv * kHeadDim * 4;
        const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
        const char* reason = nullptr;
        if (kv_bytes > free_memory() / 2) reason = "memory";
        if (spent.count() > seconds) reason = "time";
        if (reason != nullptr) {
          skipped.push_back({{"context", context},
                             {"batch", batch},
                             {"q_heads", heads.q},
                             {"kv_heads", heads.kv},
                             {"reason", reason}});
          continue;
        }
        measure_cache(device, heads, context, batch, {512, 2048, 8192}, bandwidth, rows);
      }
    }
  }
  return {{"copy_bandwidth", bandwidth}, {"rows", rows}, {"skipped", skipped}};
}

}  // namespace quest::gpu_check
