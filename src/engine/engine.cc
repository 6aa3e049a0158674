// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "quest/engine.h"

#include <ggml-cpu.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <thread>

#include "engine/graph_cache.h"
#include "model/operation_timer.h"
#include "model/weights.h"
#include "quest/error.h"
#include "quest/team.h"

namespace quest {

namespace {

// Fills the defaults in and refuses what the model cannot do.
EngineOptions resolved(EngineOptions options, const ModelInfo& info) {
  if (options.context < 0) {
    throw InvalidArgument("context " + std::to_string(options.context) +
                          " is negative; give a number of tokens");
  }
  if (options.context == 0) options.context = info.context;
  if (options.context > std::numeric_limits<std::int32_t>::max()) {
    throw InvalidArgument("context " + std::to_string(options.context) +
                          " is beyond 2147483647 tokens");
  }
  if (options.threads < 0 || options.threads > 512) {
    throw InvalidArgument("threads " + std::to_string(options.threads) +
                          " is outside 1 … 512 (0 means all cores)");
  }
  if (options.threads == 0) {
    options.threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  }
  if (options.chunk < 1 || options.chunk > 65536) {
    throw InvalidArgument("chunk " + std::to_string(options.chunk) + " is outside 1 … 65536");
  }
  return options;
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

CacheShape cache_shape(const EngineOptions& options, const ModelInfo& info) {
  CacheShape shape;
  shape.num_layers = info.num_layers;
  shape.num_kv_heads = info.num_kv_heads;
  shape.head_dim = info.head_dim;
  shape.page_size = options.page_size;
  shape.type = options.kv_type;
  shape.summary_type = options.summary_type;
  shape.num_pages =
      options.page_size > 0 ? (options.context + options.page_size - 1) / options.page_size : 0;
  return shape;
}

struct Engine::State {
  State(std::shared_ptr<const Model> the_model, const EngineOptions& the_options)
      : model(std::move(the_model)),
        options(resolved(the_options, model->info())),
        cache(cache_shape(options, model->info())),
        attention(options.reference ? make_reference_backend(cache, options.policy)
                                    : make_cpu_backend(cache, options.policy)),
        backend(ggml_backend_cpu_init()),
        graphs(model->weights(), [this](const LayerInput& input, int thread, int threads) {
          attention->forward(input, *teams[static_cast<std::size_t>(threads) - 1], thread);
        }) {
    if (!backend) throw Error("ggml's CPU backend could not start");
    ggml_backend_cpu_set_n_threads(backend.get(), options.threads);
    start_threads();
    // ggml may run with fewer threads than asked for, where the system limits them.
    for (int size = 1; size <= options.threads; ++size) {
      teams.push_back(std::make_unique<Team>(size));
    }
  }

  void start_threads();
  void check(std::span<const StepRequest> requests) const;
  void reserve(std::span<const StepRequest> requests);
  void describe(std::span<const StepRequest> requests);
  const float* compute();

  std::shared_ptr<const Model> model;
  EngineOptions options;
  KvCache cache;
  std::unique_ptr<AttentionBackend> attention;
  ggml_backend_ptr backend;
  std::unique_ptr<ggml_threadpool, decltype(&ggml_threadpool_free)> pool{nullptr,
                                                                         ggml_threadpool_free};
  std::vector<std::unique_ptr<Team>> teams;
  GraphCache graphs;
  EngineCounters counters;
  StepProfile profile;
  std::unique_ptr<OperationTimer> timer;  // while profiling

  // The current step; capacity is kept between steps.
  Batch batch;
  std::vector<std::int32_t> tokens;
  std::vector<std::int32_t> positions;
  std::vector<std::int32_t> output_rows;
};

// A ggml without OpenMP starts threads for every graph unless the backend has a pool. Its threads
// then poll for the next graph as long as sampling may take between two steps, some milliseconds,
// before they sleep.
void Engine::State::start_threads() {
  ggml_threadpool_params params = ggml_threadpool_params_default(options.threads);
  params.poll = 1;
  pool.reset(ggml_threadpool_new(&params));
  if (pool == nullptr) throw Error("ggml's threads could not start");
  ggml_backend_cpu_set_threadpool(backend.get(), pool.get());
}

void Engine::State::check(std::span<const StepRequest> requests) const {
  std::size_t rows = 0;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const StepRequest& request = requests[i];
    if (!cache.contains(request.sequence)) {
      throw InvalidArgument("sequence " + std::to_string(request.sequence) +
                            " is not in the cache");
    }
    if (request.tokens.empty())
      throw InvalidArgument("a request of a step needs at least one token");
    for (std::size_t j = 0; j < i; ++j) {
      if (requests[j].sequence == request.sequence) {
        throw InvalidArgument("sequence " + std::to_string(request.sequence) +
                              " appears twice in one step");
      }
    }
    for (Token token : request.tokens) {
      if (token < 0 || token >= model->info().vocabulary) {
        throw InvalidArgument("token " + std::to_string(token) + " is outside the vocabulary of " +
                              std::to_string(model->info().vocabulary));
      }
    }
    rows += request.tokens.size();
  }
  if (rows == 0 || rows > static_cast<std::size_t>(options.chunk)) {
    throw InvalidArgument("a step of " + std::to_string(rows) + " tokens is outside 1 … chunk (" +
                          std::to_string(options.chunk) + ")");
  }
}

void Engine::State::reserve(std::span<const StepRequest> requests) {
  std::size_t done = 0;
  try {
    for (; done < requests.size(); ++done) {
      const StepRequest& request = requests[done];
      cache.reserve(request.sequence, static_cast<std::int64_t>(request.tokens.size()));
    }
  } catch (const OutOfPages&) {
    for (std::size_t i = 0; i < done; ++i) {
      const StepRequest& request = requests[i];
      cache.truncate(request.sequence, cache.length(request.sequence) -
                                           static_cast<std::int64_t>(request.tokens.size()));
    }
    throw;
  }
}

void Engine::State::describe(std::span<const StepRequest> requests) {
  batch.clear();
  tokens.clear();
  positions.clear();
  output_rows.clear();
  for (const StepRequest& request : requests) {
    const auto count = static_cast<std::int32_t>(request.tokens.size());
    add_request(batch, cache, request.sequence, count, request.sparse);
    const std::int64_t first = cache.length(request.sequence) - count;
    for (std::int32_t i = 0; i < count; ++i) {
      if (request.all_logits || i == count - 1) {
        output_rows.push_back(static_cast<std::int32_t>(tokens.size()));
      }
      tokens.push_back(request.tokens[static_cast<std::size_t>(i)]);
      positions.push_back(static_cast<std::int32_t>(first + i));
    }
  }
}

const float* Engine::State::compute() {
  const auto start = std::chrono::steady_clock::now();
  ForwardGraph& graph = graphs.get(static_cast<std::int64_t>(tokens.size()),
                                   static_cast<std::int64_t>(output_rows.size()));
  attention->begin_step(batch, model->info().num_q_heads, options.threads);
  if (timer) timer->start(graph.graph());
  const float* logits =
      graph.run(backend.get(), tokens.data(), positions.data(), output_rows.data());
  attention->end_step();
  const double seconds = seconds_since(start);
  if (timer) {
    timer->add_to(profile);
    profile.step_seconds += seconds;
    profile.steps += 1;
  }
  counters.step_seconds += seconds;
  counters.steps += 1;
  counters.rows += static_cast<std::int64_t>(tokens.size());
  return logits;
}

Engine::Engine(std::shared_ptr<const Model> model, const EngineOptions& options)
    : state_(std::make_unique<State>(std::move(model), options)) {}
Engine::~Engine() = default;

const Model& Engine::model() const { return *state_->model; }
const EngineOptions& Engine::options() const { return state_->options; }
KvCache& Engine::cache() { return state_->cache; }
const AttentionBackend& Engine::attention() const { return *state_->attention; }

std::span<const float> Engine::step(std::span<const StepRequest> requests) {
  State& state = *state_;
  state.check(requests);
  state.reserve(requests);
  try {
    state.describe(requests);
    const float* logits = state.compute();
    return {logits,
            state.output_rows.size() * static_cast<std::size_t>(state.model->info().vocabulary)};
  } catch (...) {
    for (const StepRequest& request : requests) {
      state.cache.truncate(request.sequence, state.cache.length(request.sequence) -
                                                 static_cast<std::int64_t>(request.tokens.size()));
    }
    throw;
  }
}

void Engine::set_policy(const SelectionPolicy& policy) {
  state_->attention->set_policy(policy);
  state_->options.policy = policy;
}

const EngineCounters& Engine::counters() const {
  state_->counters.attention = state_->attention->counters();
  return state_->counters;
}

void Engine::reset_counters() {
  state_->counters = {};
  const double empty = state_->profile.empty_operation_seconds;
  state_->profile = {};
  state_->profile.empty_operation_seconds = empty;
  state_->attention->reset_counters();
}

void Engine::set_profiling(bool on) {
  State& state = *state_;
  if (on == (state.timer != nullptr)) return;
  state.timer.reset();
  if (!on) return;
  if (state.profile.empty_operation_seconds == 0) {
    state.profile.empty_operation_seconds = empty_operation_seconds(state.backend.get());
  }
  state.timer = std::make_unique<OperationTimer>(state.backend.get());
}

const StepProfile& Engine::profile() const { return state_->profile; }

}  // namespace quest
