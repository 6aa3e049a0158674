// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
// The stages of the CPU backend, each beside the read bandwidth of the same process. Every
// benchmark walks over all layers of a model-sized cache, so that no layer finds its pages in a
// cache because it was the last one too. `best_*` counters come from the fastest iteration: on a
// shared machine they are the ones to compare.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include "attention/cpu/amx.h"
#include "attention/cpu/kernels.h"
#include "bench/probe.h"
#include "bench/workers.h"
#include "quest/attention.h"
#include "selection/fold_query.h"
#include "selection/group_selection.h"

namespace quest {
namespace {

using cli::Workers;

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Times iterations by hand and keeps the fastest.
class Best {
 public:
  template <class Body>
  void time(benchmark::State& state, const Body& body) {
    const auto start = std::chrono::steady_clock::now();
    body();
    const double seconds = seconds_since(start);
    state.SetIterationTime(seconds);
    best_ = std::min(best_, seconds);
  }
  double seconds() const { return best_; }

 private:
  double best_ = std::numeric_limits<double>::infinity();
};

struct Model {
  std::int32_t layers;
  std::int32_t q_heads;
  std::int32_t kv_heads;
  std::int32_t head_dim;
};
constexpr Model kSmolLm2{30, 9, 3, 64};
constexpr Model kLlama8B{8, 32, 8, 128};  // 8 of its 32 layers

CacheShape shape_of(const Model& model, std::int64_t context) {
  return {model.layers, model.kv_heads, model.head_dim, 16, KvType::kF16, context / 16 + 64};
}

/// A sequence of `context` tokens with random keys and values in all layers.
struct Filled {
  Filled(const Model& model_, std::int64_t context)
      : model(model_), cache(shape_of(model_, context)), sequence(cache.create()) {
    cache.reserve(sequence, context);
    const std::int32_t d = model.head_dim;
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    std::vector<float> rows(static_cast<std::size_t>(4096 * d));
    for (float& x : rows) x = normal(random);
    for (std::int32_t layer = 0; layer < model.layers; ++layer) {
      for (std::int32_t head = 0; head < model.kv_heads; ++head) {
        for (std::int64_t t = 0; t < context; t += 4096) {
          const std::int64_t n = std::min<std::int64_t>(4096, context - t);
          cache.append(layer, head, sequence, t, n, rows.data(), d, rows.data(), d);
          cache.summarise(layer, head, sequence, t, n);
        }
      }
    }
  }
  Model model;
  KvCache cache;
  SequenceId sequence;
};

/// Runs one step of `rows` tokens over all layers, again and again at the same length.
void run_steps(benchmark::State& state, const Model& model, std::int64_t context, std::int32_t rows,
               const SelectionPolicy& policy) {
  const int threads = static_cast<int>(state.range(0));
  Filled filled(model, context - rows);
  filled.cache.reserve(filled.sequence, rows);
  Batch batch;
  add_request(batch, filled.cache, filled.sequence, rows, !policy.dense);
  const auto backend = make_cpu_backend(filled.cache, policy);

  const std::int64_t kv_stride = std::int64_t{model.kv_heads} * model.head_dim;
  const std::int64_t q_stride = std::int64_t{model.q_heads} * model.head_dim;
  std::mt19937 random(2);
  std::normal_distribution<float> normal;
  std::vector<float> q(static_cast<std::size_t>(rows * q_stride));
  for (float& x : q) x = normal(random);
  std::vector<float> kv(static_cast<std::size_t>(rows * kv_stride));
  for (float& x : kv) x = normal(random);
  std::vector<float> out(q.size());

  Workers workers(threads);
  Best best;
  const auto step = [&] {
    backend->begin_step(batch, model.q_heads, threads);
    workers.run([&](Team& team, int thread) {
      for (std::int32_t layer = 0; layer < model.layers; ++layer) {
        LayerInput input{
            layer,      model.q_heads, 1.0F / std::sqrt(static_cast<float>(model.head_dim)),
            q.data(),   kv.data(),     kv.data(),
            q_stride,   kv_stride,     kv_stride,
            out.data(), q_stride};
        backend->forward(input, team, thread);
        team.wait();
      }
    });
    backend->end_step();
  };
  step();
  backend->reset_counters();
  for (auto _ : state) best.time(state, step);
  const AttentionCounters& counters = backend->counters();
  const auto steps = static_cast<double>(state.iterations());
  const double bytes = static_cast<double>(counters.bytes_read()) / steps;
  state.counters["us_per_layer"] = best.seconds() * 1e6 / model.layers;
  if (rows == 1) {
    state.counters["best_GB/s"] = bytes / best.seconds() * 1e-9;
    state.counters["MB"] = bytes * 1e-6;
  } else {
    // QK and PV over the causal triangle.
    const double seen = static_cast<double>(context - rows) + rows / 2.0;
    const double flops = 4.0 * model.layers * rows * seen * model.q_heads * model.head_dim;
    state.counters["best_GFLOP/s"] = flops / best.seconds() * 1e-9;
    state.counters["tokens/s"] = rows / best.seconds();
  }
  const double total = counters.seconds.total();
  state.counters["append%"] = 100 * (counters.seconds.append + counters.seconds.summarise) / total;
  state.counters["score%"] = 100 * counters.seconds.score / total;
  state.counters["select%"] = 100 * counters.seconds.select / total;
  state.counters["attend%"] = 100 * counters.seconds.attend / total;
}

SelectionPolicy dense_policy() {
  SelectionPolicy policy;
  policy.dense = true;
  return policy;
}

SelectionPolicy sparse_policy(std::int64_t budget) {
  SelectionPolicy policy;
  policy.budget = budget;
  policy.dense_layers = 0;
  return policy;
}

void ReadBandwidth(benchmark::State& state) {
  Workers workers(static_cast<int>(state.range(0)));
  const std::int64_t bytes = state.range(1) << 20;
  cli::BandwidthProbe probe(workers, bytes);
  Best best;
  for (auto _ : state) best.time(state, [&] { probe.pass(); });
  state.counters["best_GB/s"] = static_cast<double>(bytes) / best.seconds() * 1e-9;
}
BENCHMARK(ReadBandwidth)
    ->ArgNames({"threads", "MiB"})
    ->ArgsProduct({{1, 2}, {190, 1024}})
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond);

void DenseDecode(benchmark::State& state) {
  run_steps(state, kSmolLm2, state.range(1), 1, dense_policy());
}
BENCHMARK(DenseDecode)
    ->ArgNames({"threads", "context"})
    ->ArgsProduct({{1, 2}, {8192, 32768}})
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond);

void DenseDecodeLlama8B(benchmark::State& state) {
  run_steps(state, kLlama8B, state.range(1), 1, dense_policy());
}
BENCHMARK(DenseDecodeLlama8B)
    ->ArgNames({"threads", "context"})
    ->ArgsProduct({{1, 2}, {8192}})
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond);

void SparseDecode(benchmark::State& state) {
  run_steps(state, kSmolLm2, state.range(1), 1, sparse_policy(state.range(2)));
}
BENCHMARK(SparseDecode)
    ->ArgNames({"threads", "context", "budget"})
    ->Args({1, 8192, 512})
    ->Args({2, 8192, 512})
    ->Args({1, 32768, 2048})
    ->Args({2, 32768, 2048})
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond);

/// Greatest float32 rate of one core: two vectors of fused multiply-adds a cycle. 0 if unknown.
double vector_peak() {
#if QUEST_HAVE_AMX
#define QUEST_FMA_REGISTERS \
  "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9"
  if (__builtin_cpu_supports("avx512f") == 0) return 0;
  constexpr int kTimes = 20000;
  double best = 1;
  for (int repeat = 0; repeat < 20; ++repeat) {
    asm volatile("vzeroall" : : : QUEST_FMA_REGISTERS);  // numbers that cost nothing extra
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < kTimes; ++i) {
#define QUEST_FMA(n) "vfmadd231ps %%zmm" #n ", %%zmm" #n ", %%zmm" #n "\n\t"
      asm volatile(QUEST_FMA(0) QUEST_FMA(1) QUEST_FMA(2) QUEST_FMA(3) QUEST_FMA(4) QUEST_FMA(5)
                       QUEST_FMA(6) QUEST_FMA(7) QUEST_FMA(8) QUEST_FMA(9)
                   :
                   :
                   : QUEST_FMA_REGISTERS);
#undef QUEST_FMA
    }
    best = std::min(best, seconds_since(start));
  }
  return 10.0 * 32 * kTimes / best;
#else
  return 0;
#endif
}

/// The same for tile products. They count once, although the kernel needs two or three of them.
double tile_peak() {
#if QUEST_HAVE_AMX
  if (!cpu::amx_usable()) return 0;
  constexpr int kTimes = 5000;
  const cpu::TileScope scope;
  double best = 1;
  for (int repeat = 0; repeat < 20; ++repeat) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < kTimes; ++i) {
      cpu::tile_dot<0, 4, 6>();
      cpu::tile_dot<1, 4, 7>();
      cpu::tile_dot<2, 5, 6>();
      cpu::tile_dot<3, 5, 7>();
    }
    best = std::min(best, seconds_since(start));
  }
  return 4.0 * 2 * 16 * 16 * 32 * kTimes / best;
#else
  return 0;
#endif
}

void prefill(benchmark::State& state, const Model& model) {
  const bool tiles = state.range(2) != 0;
  cpu::allow_amx(tiles);
  if (tiles && !cpu::amx_usable()) {
    state.SkipWithError("this machine has no tile products");
    return;
  }
  run_steps(state, model, state.range(1), 512, dense_policy());
  const double peak = (tiles ? tile_peak() : vector_peak()) * static_cast<double>(state.range(0));
  if (peak > 0) {
    state.counters["peak_GFLOP/s"] = peak * 1e-9;
    state.counters["of_peak%"] = 100e9 * state.counters["best_GFLOP/s"] / peak;
  }
  cpu::allow_amx(true);
}

void Prefill(benchmark::State& state) { prefill(state, Model{4, 9, 3, 64}); }
BENCHMARK(Prefill)
    ->ArgNames({"threads", "context", "tiles"})
    ->ArgsProduct({{1, 2}, {512, 4096, 8192}, {0, 1}})
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond);

void PrefillLlama8B(benchmark::State& state) { prefill(state, Model{1, 32, 8, 128}); }
BENCHMARK(PrefillLlama8B)
    ->ArgNames({"threads", "context", "tiles"})
    ->ArgsProduct({{1, 2}, {8192}, {0, 1}})
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond);

/// The score kernel alone: one row of coefficients over the summaries of one head.
void Score(benchmark::State& state) {
  const auto pages = static_cast<std::int32_t>(state.range(0));
  const Filled filled(Model{30, 9, 3, 64}, std::int64_t{pages} * 16);
  const CacheShape& shape = filled.cache.shape();
  std::vector<float> coefficients(128, 0.5F);
  std::vector<float> scores(static_cast<std::size_t>(pages));
  const cpu::Kernels kernels = cpu::kernels_for(shape);
  Best best;
  for (auto _ : state) {
    best.time(state, [&] {
      for (std::int32_t layer = 0; layer < 30; ++layer) {
        const PagedKv kv = filled.cache.layer(layer);
        for (std::int32_t head = 0; head < 3; ++head) {
          cpu::ScoreArgs args;
          args.summaries = kv.summary(0, head);
          args.stride = shape.summary_bytes();
          args.table = filled.cache.pages(filled.sequence).data();
          args.head_dim = 64;
          args.coefficients = coefficients.data();
          args.rows = 1;
          args.count = pages;
          args.scores = scores.data();
          args.scores_stride = pages;
          kernels.score(args);
        }
      }
    });
  }
  state.counters["best_GB/s"] =
      static_cast<double>(std::int64_t{90} * pages * shape.summary_bytes()) / best.seconds() * 1e-9;
}
BENCHMARK(Score)->ArgNames({"pages"})->Args({512})->Args({2048})->UseManualTime();

/// Top-K alone: one list of an eighth of the pages.
void Select(benchmark::State& state) {
  const auto pages = static_cast<std::int32_t>(state.range(0));
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  std::vector<float> scores(static_cast<std::size_t>(pages));
  for (float& x : scores) x = normal(random);
  SelectionScratch scratch;
  scratch.reserve(1, pages);
  std::vector<std::int32_t> list(static_cast<std::size_t>(pages));
  const std::int64_t budget = pages / 8;
  const ForcedPages forced = forced_pages(std::int64_t{pages} * 16, 16, 16, 64, budget);
  const PageScores values{scores.data(), pages, 1, 1.0F};
  for (auto _ : state) {
    benchmark::DoNotOptimize(
        select_pages(GroupMode::kGroupMean, values, forced, budget, scratch, list.data()));
  }
}
BENCHMARK(Select)->ArgNames({"pages"})->Args({512})->Args({2048})->Args({8192});

}  // namespace
}  // namespace quest
