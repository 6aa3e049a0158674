// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "bench/decode.h"

#include <algorithm>
#include <chrono>
#include <span>
#include <utility>

#include "bench/llama_peer.h"
#include "filler_text.h"
#include "interrupt.h"
#include "progress.h"
#include "quest/error.h"

namespace quest::cli {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// One engine with a filled cache, and what was measured on it.
class Arm {
 public:
  Arm(const Tokenizer& tokenizer, DecodeBenchRow row)
      : tokenizer_(tokenizer), row_(std::move(row)) {}
  virtual ~Arm() = default;

  // False after Ctrl-C.
  bool prefill(std::span<const Token> tokens) {
    ProgressBar bar(row_.engine + ": reading");
    const auto start = Clock::now();
    if (!read(tokens, bar.callback(row_.prefill_tokens))) return false;
    row_.prefill_tokens = static_cast<std::int64_t>(tokens.size());
    row_.prefill_rate = static_cast<double>(tokens.size()) / seconds_since(start);
    const std::span<const float> logits = last_logits();
    start_logits_.assign(logits.begin(), logits.end());
    return true;
  }

  // Writes greedily from the filled cache and takes the cache back to where it was. The rate is
  // the slope over emitted tokens. The first step only leads in: it finds the caches full of
  // another engine's data and threads asleep.
  void decode(std::int64_t tokens, bool measured) {
    Sampler sampler(tokenizer_, SamplingOptions{});
    Token token = sampler.sample(start_logits_);
    token = sampler.sample(step({&token, 1}));
    start_counting();
    const auto start = Clock::now();
    for (std::int64_t i = 1; i < tokens; ++i) token = sampler.sample(step({&token, 1}));
    const double seconds = seconds_since(start);
    if (measured) {
      row_.decode_rates.push_back(static_cast<double>(tokens - 1) / seconds);
      row_.steps += tokens - 1;
      add_counters(row_.counters);
    }
    truncate(row_.prefill_tokens);
  }

  const DecodeBenchRow& row() const { return row_; }

 protected:
  virtual bool read(std::span<const Token> tokens, const Progress& progress) = 0;
  virtual std::span<const float> last_logits() = 0;
  virtual std::span<const float> step(std::span<const Token> tokens) = 0;
  virtual void truncate(std::int64_t length) = 0;
  virtual void start_counting() {}
  virtual void add_counters(EngineCounters& /*counters*/) {}

 private:
  const Tokenizer& tokenizer_;
  DecodeBenchRow row_;
  std::vector<float> start_logits_;
};

class QuestArm final : public Arm {
 public:
  QuestArm(const std::shared_ptr<const Model>& model, const EngineOptions& options,
           DecodeBenchRow row)
      : Arm(model->tokenizer(), std::move(row)), engine_(model, options), session_(engine_) {}

 private:
  bool read(std::span<const Token> tokens, const Progress& progress) override {
    return session_.prefill(tokens, progress);
  }
  std::span<const float> last_logits() override { return session_.logits(); }
  std::span<const float> step(std::span<const Token> tokens) override {
    StepRequest request;
    request.sequence = session_.sequence();
    request.tokens = tokens;
    return engine_.step({&request, 1});
  }
  void truncate(std::int64_t length) override { session_.truncate(length); }
  void start_counting() override { engine_.reset_counters(); }
  void add_counters(EngineCounters& counters) override {
    const EngineCounters& more = engine_.counters();
    counters.attention += more.attention;
    counters.step_seconds += more.step_seconds;
    counters.steps += more.steps;
    counters.rows += more.rows;
  }

  Engine engine_;
  Session session_;
};

class PeerArm final : public Arm {
 public:
  PeerArm(const Tokenizer& tokenizer, LlamaPeer& peer, const EngineOptions& options,
          DecodeBenchRow row)
      : Arm(tokenizer, std::move(row)), peer_(peer) {
    peer_.open(options.context, options.kv_type, options.threads);
  }
  ~PeerArm() override { peer_.close(); }

 private:
  bool read(std::span<const Token> tokens, const Progress& progress) override {
    for (std::size_t done = 0; done < tokens.size();) {
      const std::size_t count = std::min<std::size_t>(tokens.size() - done, LlamaPeer::kChunk);
      logits_ = peer_.step(tokens.subspan(done, count));
      done += count;
      if (!progress(static_cast<std::int64_t>(done), static_cast<std::int64_t>(tokens.size()))) {
        return false;
      }
    }
    return true;
  }
  std::span<const float> last_logits() override { return logits_; }
  std::span<const float> step(std::span<const Token> tokens) override { return peer_.step(tokens); }
  void truncate(std::int64_t length) override { peer_.truncate(length); }

  LlamaPeer& peer_;
  std::span<const float> logits_;
};

std::vector<std::unique_ptr<Arm>> make_arms(const std::shared_ptr<const Model>& model,
                                            EngineOptions options,
                                            std::span<const std::unique_ptr<LlamaPeer>> peers,
                                            const DecodeBenchPlan& plan) {
  options.context = plan.context;
  std::vector<std::unique_ptr<Arm>> arms;
  DecodeBenchRow row;
  row.context = plan.context;
  for (const std::int64_t budget : plan.budgets) {
    row.engine = "quest";
    row.budget = budget;
    options.policy = options.policy.with_budget(budget, options.page_size);
    arms.push_back(std::make_unique<QuestArm>(model, options, row));
  }
  row.budget.reset();
  row.engine = "dense";
  options.policy.dense = true;
  arms.push_back(std::make_unique<QuestArm>(model, options, row));
  row.engine = "llama.cpp";
  for (const auto& peer : peers) {
    row.flash_attention = peer->flash_attention();
    arms.push_back(std::make_unique<PeerArm>(model->tokenizer(), *peer, options, row));
  }
  return arms;
}

// A comparison of full attention with itself must not pass for a result.
void check_really_sparse(const DecodeBenchRow& row, const EngineOptions& options) {
  if (!row.budget) return;
  const double crossover = static_cast<double>(*row.budget) * options.policy.crossover;
  if (static_cast<double>(row.prefill_tokens) <= crossover + options.page_size) return;
  const AttentionCounters& attention = row.counters.attention;
  const std::int64_t read = attention.bytes_read();
  if (attention.sparse_lists > 0 && read < attention.dense_bytes) return;
  throw Error("quest with budget " + std::to_string(*row.budget) + " read " + std::to_string(read) +
              " bytes at context " + std::to_string(row.context) + ", full attention reads " +
              std::to_string(attention.dense_bytes) +
              ": nothing was left out, so there is nothing to compare");
}

}  // namespace

std::string DecodeBenchRow::name() const {
  if (flash_attention) return engine + (*flash_attention ? " (flash)" : " (plain)");
  return budget ? engine + " " + std::to_string(*budget) : engine;
}

std::vector<DecodeBenchRow> run_decode_bench(const std::shared_ptr<const Model>& model,
                                             const EngineOptions& options,
                                             std::span<const std::unique_ptr<LlamaPeer>> peers,
                                             const DecodeBenchPlan& plan) {
  const std::vector<Token> text = filler_tokens(model->tokenizer(), plan.context - plan.tokens);
  const auto arms = make_arms(model, options, peers, plan);
  for (const auto& arm : arms) {
    if (!arm->prefill(text)) return {};
  }
  for (const auto& arm : arms) arm->decode(std::min<std::int64_t>(plan.tokens, 2), false);
  for (std::int32_t round = 0; round < plan.repeat; ++round) {
    for (const auto& arm : arms) {
      if (interrupted()) return {};
      arm->decode(plan.tokens, true);
    }
  }
  std::vector<DecodeBenchRow> rows;
  for (const auto& arm : arms) {
    check_really_sparse(arm->row(), options);
    rows.push_back(arm->row());
  }
  return rows;
}

}  // namespace quest::cli
