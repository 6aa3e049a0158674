// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "bench/decode.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
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

// Exactly `count` tokens of filler text, begin-of-text included where the model wants it.
std::vector<Token> filler_tokens(const Tokenizer& tokenizer, std::int64_t count) {
  constexpr std::size_t kShortestSentence = 8;  // tokens; every word is one at least
  const auto wanted = static_cast<std::size_t>(count);
  std::vector<Token> tokens =
      tokenizer.tokenize(filler_text(wanted / kShortestSentence + 1, 1), true, false);
  tokens.resize(wanted);
  return tokens;
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
  // the slope over emitted tokens: the clock starts with the first of them, so reading the prompt
  // is never part of it.
  void decode(std::int64_t tokens, bool measured) {
    Sampler sampler(tokenizer_, SamplingOptions{});
    Token token = sampler.sample(start_logits_);
    start_counting();
    const auto start = Clock::now();
    for (std::int64_t i = 0; i < tokens; ++i) token = sampler.sample(step({&token, 1}));
    const double seconds = seconds_since(start);
    if (measured) {
      row_.decode_rates.push_back(static_cast<double>(tokens) / seconds);
      row_.steps += tokens;
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
    options.policy.budget = budget;
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
void check_really_sparse(const DecodeBenchRow& row, std::int32_t page_size) {
  if (!row.budget || row.prefill_tokens <= *row.budget + page_size) return;
  const AttentionCounters& attention = row.counters.attention;
  const std::int64_t read = attention.bytes_read();
  if (attention.sparse_lists > 0 && read < attention.dense_bytes) return;
  throw Error("quest with budget " + std::to_string(*row.budget) + " read " + std::to_string(read) +
              " bytes at context " + std::to_string(row.context) + ", full attention reads " +
              std::to_string(attention.dense_bytes) +
              ": nothing was left out, so there is nothing to compare");
}

std::string number_or_dash(double value, int decimals, bool present) {
  if (!present) return "-";
  char text[32];
  std::snprintf(text, sizeof text, "%.*f", decimals, value);
  return text;
}

}  // namespace

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  if (values.size() % 2 == 1) return values[middle];
  return (values[middle - 1] + values[middle]) / 2;
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
    check_really_sparse(arm->row(), options.page_size);
    rows.push_back(arm->row());
  }
  return rows;
}

Json row_fields(const DecodeBenchRow& row) {
  const auto [slowest, fastest] =
      std::minmax_element(row.decode_rates.begin(), row.decode_rates.end());
  Json json = {{"engine", row.engine},
               {"context", row.context},
               {"budget", row.budget ? Json(*row.budget) : Json(nullptr)},
               {"decode_tokens_per_second", median(row.decode_rates)},
               {"decode_tokens_per_second_min", *slowest},
               {"decode_tokens_per_second_max", *fastest},
               {"prefill_tokens", row.prefill_tokens},
               {"prefill_tokens_per_second", row.prefill_rate}};
  if (row.flash_attention) json["flash_attention"] = *row.flash_attention;
  if (row.counters.steps == 0) return json;
  const AttentionCounters& attention = row.counters.attention;
  const auto steps = static_cast<double>(row.steps);
  json["kv_bytes_read_per_token"] = static_cast<double>(attention.bytes_read()) / steps;
  json["kv_bytes_dense_per_token"] = static_cast<double>(attention.dense_bytes) / steps;
  json["bytes_read"] = bytes_read_fields(attention);
  json["seconds"] = seconds_fields(row.counters);
  Json share = Json::object();
  for (const auto& [stage, seconds] : json["seconds"].items()) {
    share[stage] = ratio_or_null(seconds.get<double>(), row.counters.step_seconds);
  }
  json["step_share"] = std::move(share);
  return json;
}

std::string as_table(const std::vector<DecodeBenchRow>& rows) {
  constexpr double kMiB = 1024.0 * 1024.0;
  char line[256];
  std::snprintf(line, sizeof line, "%-17s %8s %7s %10s %17s %11s %12s %11s\n", "engine", "context",
                "budget", "decode t/s", "min..max", "prefill t/s", "KV MiB/token", "attention %");
  std::string table = line;
  for (const DecodeBenchRow& row : rows) {
    const bool ours = row.counters.steps > 0;
    const AttentionCounters& attention = row.counters.attention;
    const auto [slowest, fastest] =
        std::minmax_element(row.decode_rates.begin(), row.decode_rates.end());
    const std::string spread =
        number_or_dash(*slowest, 1, true) + ".." + number_or_dash(*fastest, 1, true);
    const double bytes =
        ours ? static_cast<double>(attention.bytes_read()) / static_cast<double>(row.steps) : 0;
    const double share = ours ? 100 * attention.seconds.total() / row.counters.step_seconds : 0;
    const std::string name =
        row.engine + (row.flash_attention ? (*row.flash_attention ? " (flash)" : " (plain)") : "");
    std::snprintf(line, sizeof line, "%-17s %8lld %7s %10.1f %17s %11.1f %12s %11s\n", name.c_str(),
                  static_cast<long long>(row.context),
                  row.budget ? std::to_string(*row.budget).c_str() : "-", median(row.decode_rates),
                  spread.c_str(), row.prefill_rate, number_or_dash(bytes / kMiB, 2, ours).c_str(),
                  number_or_dash(share, 1, ours).c_str());
    table += line;
  }
  return table;
}

}  // namespace quest::cli
