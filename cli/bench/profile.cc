// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "bench/profile.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <span>

#include "bench/spread.h"
#include "filler_text.h"
#include "interrupt.h"
#include "progress.h"

namespace quest::cli {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// The same tokens each time.
struct Run {
  double seconds = 0;   // sampling included
  double sampling = 0;  // seconds
  StepProfile profile;  // nothing if the run was not profiled
  EngineCounters counters;
};

// An engine whose cache holds a text, and runs from its end.
class Profiled {
 public:
  Profiled(const std::shared_ptr<const Model>& model, const EngineOptions& options)
      : tokenizer_(model->tokenizer()), engine_(model, options), session_(engine_) {}

  // False after Ctrl-C.
  bool fill(std::int64_t count) {
    ProgressBar bar("reading");
    std::int64_t done = 0;
    return session_.prefill(filler_tokens(tokenizer_, count), bar.callback(done));
  }

  // Decodes greedily, or reads as many tokens in one step, and takes the tokens back.
  Run run(std::int64_t tokens, bool prefill, bool profiled) {
    const std::int64_t length = session_.length();
    engine_.set_profiling(profiled);
    Run result;
    if (prefill) {
      read(tokens, result);
    } else {
      decode(tokens, result);
    }
    result.profile = engine_.profile();
    result.counters = engine_.counters();
    engine_.cache().truncate(session_.sequence(), length);
    return result;
  }

 private:
  std::span<const float> step(std::span<const Token> tokens, bool sparse) {
    StepRequest request;
    request.sequence = session_.sequence();
    request.tokens = tokens;
    request.sparse = sparse;
    return engine_.step({&request, 1});
  }

  void read(std::int64_t tokens, Run& run) {
    const std::vector<Token> text = filler_tokens(tokenizer_, tokens);
    engine_.reset_counters();
    const auto start = Clock::now();
    step(text, false);
    run.seconds = seconds_since(start);
  }

  void decode(std::int64_t tokens, Run& run) {
    Sampler sampler(tokenizer_, SamplingOptions{});
    Token token = 0;
    step({&token, 1}, true);  // the first step after a pause is not like the others
    engine_.reset_counters();
    const auto start = Clock::now();
    for (std::int64_t i = 0; i < tokens; ++i) {
      const std::span<const float> logits = step({&token, 1}, true);
      const auto sampled = Clock::now();
      token = sampler.sample(logits);
      run.sampling += seconds_since(sampled);
    }
    run.seconds = seconds_since(start);
  }

  const Tokenizer& tokenizer_;
  Engine engine_;
  Session session_;
};

std::vector<ProfileLine> lines_of(const Run& run, double tokens) {
  std::vector<ProfileLine> lines;
  for (std::size_t i = 0; i < kNumOperations; ++i) {
    const OperationProfile& part = run.profile.operations[i];
    const auto operation = static_cast<Operation>(i);
    const std::int64_t bytes = operation == Operation::kAttention
                                   ? run.counters.attention.bytes_read()
                                   : part.weight_bytes;
    lines.push_back({std::string(name_of(operation)), part.seconds / tokens,
                     static_cast<double>(part.count) / tokens, static_cast<double>(bytes) / tokens,
                     part.flops / tokens});
  }
  const double outside = run.seconds - run.profile.graph_seconds() - run.sampling;
  lines.push_back({"outside", outside / tokens, 0, 0, 0});
  lines.push_back({"sampling", run.sampling / tokens, 0, 0, 0});
  return lines;
}

}  // namespace

std::optional<Breakdown> run_profile(const std::shared_ptr<const Model>& model,
                                     EngineOptions options, const ProfilePlan& plan) {
  options.context = plan.context;
  Profiled profiled(model, options);
  // Decoding takes one step before those that are measured.
  if (!profiled.fill(plan.context - plan.tokens - 1)) return {};
  profiled.run(plan.tokens, plan.prefill, true);  // warms up
  std::vector<Run> runs;
  std::vector<double> plain;
  for (std::int32_t round = 0; round < plan.repeat; ++round) {
    if (interrupted()) return {};
    plain.push_back(profiled.run(plan.tokens, plan.prefill, false).seconds);
    runs.push_back(profiled.run(plan.tokens, plan.prefill, true));
  }
  const auto middle = runs.begin() + static_cast<std::ptrdiff_t>(runs.size() / 2);
  std::nth_element(runs.begin(), middle, runs.end(),
                   [](const Run& a, const Run& b) { return a.seconds < b.seconds; });
  const auto tokens = static_cast<double>(plan.tokens);
  Breakdown result;
  result.context = plan.context;
  result.lines = lines_of(*middle, tokens);
  result.seconds = middle->seconds / tokens;
  result.plain_seconds = spread(plain).median / tokens;
  result.operations = static_cast<double>(middle->profile.graph_operations()) / tokens;
  result.empty_seconds = middle->profile.empty_operation_seconds;
  result.counters = middle->counters;
  return result;
}

}  // namespace quest::cli
