// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "profile_bench.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "decode_bench.h"
#include "filler_text.h"
#include "interrupt.h"
#include "json_output.h"
#include "output.h"
#include "progress.h"
#include "quest/error.h"

namespace quest::cli {
namespace {

using Clock = std::chrono::steady_clock;

struct ProfileOptions {
  CommonOptions common;
  std::string contexts = "512,8192";
  std::int32_t repeat = 5;
  std::int64_t tokens = 16;
};

// One line of the breakdown, per decoded token.
struct Line {
  std::string kind;
  double seconds = 0;
  double operations = 0;
  double bytes = 0;  // read: weights or KV; 0 where they do not matter
};

// What was measured at one context, per decoded token.
struct Breakdown {
  std::int64_t context = 0;
  std::vector<Line> lines;
  double seconds = 0;           // profiled, sampling included
  double plain_seconds = 0;     // the same without the profile
  double operations = 0;        // of the graph
  double empty_seconds = 0;     // of an operation that does nothing
  AttentionCounters attention;  // of all profiled steps
  std::int64_t profiled_steps = 0;
};

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::vector<std::int64_t> parse_contexts(const std::string& text) {
  std::vector<std::int64_t> values;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    std::int64_t value = 0;
    const char* const last = text.data() + end;
    const auto [stop, error] = std::from_chars(text.data() + begin, last, value);
    if (error != std::errc{} || stop != last || value < 1) {
      throw InvalidArgument("--context '" + text +
                            "' must be numbers of tokens with commas between, such as 512,8192");
    }
    values.push_back(value);
    begin = end + 1;
  }
  return values;
}

std::uint64_t read_all(const std::uint64_t* words, std::size_t count) {
  constexpr std::size_t kAhead = 512;  // words
  std::uint64_t sums[32] = {};
  for (std::size_t i = 0; i + 32 <= count; i += 32) {
    for (std::size_t line = 0; line < 32; line += 8) {
      __builtin_prefetch(words + std::min(i + kAhead + line, count - 1));
    }
    for (std::size_t j = 0; j < 32; ++j) sums[j] += words[i + j];
  }
  std::uint64_t sum = 0;
  for (const std::uint64_t part : sums) sum += part;
  return sum;
}

// Bytes a second that all threads together read from memory, median of passes over a buffer that
// no cache holds.
double read_bandwidth(int threads) {
  constexpr std::size_t kWords = std::size_t{128} << 20;  // 1 GiB
  constexpr int kPasses = 5;
  const std::vector<std::uint64_t> buffer(kWords, 1);
  std::vector<double> rates;
  std::atomic<std::uint64_t> sink{0};
  for (int pass = 0; pass < kPasses; ++pass) {
    const auto start = Clock::now();
    std::vector<std::jthread> workers;
    for (int t = 0; t < threads; ++t) {
      const std::size_t part = kWords / static_cast<std::size_t>(threads);
      workers.emplace_back([&, t, part] {
        sink += read_all(buffer.data() + part * static_cast<std::size_t>(t), part);
      });
    }
    workers.clear();
    rates.push_back(static_cast<double>(kWords * sizeof(std::uint64_t)) / seconds_since(start));
  }
  return sink == 0 ? 0 : median(rates);
}

// An engine whose cache holds a text, and runs of decoded tokens from its end.
class ProfiledDecode {
 public:
  ProfiledDecode(const std::shared_ptr<const Model>& model, const EngineOptions& options)
      : tokenizer_(model->tokenizer()), engine_(model, options), session_(engine_) {}

  // False after Ctrl-C.
  bool prefill(std::int64_t count) {
    constexpr std::size_t kShortestSentence = 8;  // tokens; every word is one at least
    const auto wanted = static_cast<std::size_t>(count);
    std::vector<Token> tokens =
        tokenizer_.tokenize(filler_text(wanted / kShortestSentence + 1, 1), true, false);
    tokens.resize(wanted);
    ProgressBar bar("reading");
    std::int64_t done = 0;
    return session_.prefill(tokens, bar.callback(done));
  }

  // Decodes greedily and takes the tokens back; the seconds of a token. The first token and what a
  // run writes are the same each time.
  double decode(std::int64_t tokens, bool profiled) {
    const std::int64_t length = session_.length();
    Sampler sampler(tokenizer_, SamplingOptions{});
    engine_.set_profiling(profiled);
    Token token = 0;
    step(token);  // the first step after a change of the graph or the cache is not like the others
    engine_.reset_counters();
    sampling_ = 0;
    const auto start = Clock::now();
    for (std::int64_t i = 0; i < tokens; ++i) {
      const std::span<const float> logits = step(token);
      const auto sampled = Clock::now();
      token = sampler.sample(logits);
      sampling_ += seconds_since(sampled);
    }
    const double seconds = seconds_since(start);
    engine_.cache().truncate(session_.sequence(), length);
    return seconds / static_cast<double>(tokens);
  }

  const Engine& engine() const { return engine_; }
  double sampling_seconds() const { return sampling_; }  // of the last run

 private:
  std::span<const float> step(Token token) {
    StepRequest request;
    request.sequence = session_.sequence();
    request.tokens = {&token, 1};
    return engine_.step({&request, 1});
  }

  const Tokenizer& tokenizer_;
  Engine engine_;
  Session session_;
  double sampling_ = 0;
};

// The sum of several profiled runs.
struct Sums {
  StepProfile profile;
  AttentionCounters attention;
  double seconds = 0;
  double sampling = 0;

  void add(const ProfiledDecode& run, double run_seconds) {
    const StepProfile& more = run.engine().profile();
    for (std::size_t i = 0; i < kNumOperations; ++i) {
      profile.operations[i].seconds += more.operations[i].seconds;
      profile.operations[i].count += more.operations[i].count;
      profile.operations[i].weight_bytes += more.operations[i].weight_bytes;
    }
    profile.steps += more.steps;
    profile.empty_operation_seconds = more.empty_operation_seconds;
    attention += run.engine().counters().attention;
    seconds += run_seconds;
    sampling += run.sampling_seconds();
  }
};

Breakdown breakdown(const Sums& sums, std::int64_t context, double plain_seconds) {
  const auto steps = static_cast<double>(sums.profile.steps);
  Breakdown result;
  result.context = context;
  for (std::size_t i = 0; i < kNumOperations; ++i) {
    const OperationProfile& part = sums.profile.operations[i];
    const auto operation = static_cast<Operation>(i);
    const std::int64_t bytes =
        operation == Operation::kAttention ? sums.attention.bytes_read() : part.weight_bytes;
    result.lines.push_back({std::string(name_of(operation)), part.seconds / steps,
                            static_cast<double>(part.count) / steps,
                            static_cast<double>(bytes) / steps});
  }
  const double outside = sums.seconds - sums.profile.graph_seconds() - sums.sampling;
  result.lines.push_back({"outside", outside / steps, 0, 0});
  result.lines.push_back({"sampling", sums.sampling / steps, 0, 0});
  result.seconds = sums.seconds / steps;
  result.plain_seconds = plain_seconds;
  result.operations = static_cast<double>(sums.profile.graph_operations()) / steps;
  result.empty_seconds = sums.profile.empty_operation_seconds;
  result.attention = sums.attention;
  result.profiled_steps = sums.profile.steps;
  return result;
}

// Runs with and without the profile in turns. Nothing after Ctrl-C.
std::vector<Breakdown> profile_at(const std::shared_ptr<const Model>& model, EngineOptions options,
                                  std::int64_t context, const ProfileOptions& plan) {
  options.context = context;
  ProfiledDecode decode(model, options);
  if (!decode.prefill(context - plan.tokens - 1)) return {};
  decode.decode(plan.tokens, true);  // warms up
  Sums sums;
  std::vector<double> plain;
  for (std::int32_t round = 0; round < plan.repeat; ++round) {
    if (interrupted()) return {};
    plain.push_back(decode.decode(plan.tokens, false));
    const double seconds = decode.decode(plan.tokens, true);
    sums.add(decode, seconds * static_cast<double>(plan.tokens));
  }
  return {breakdown(sums, context, median(plain))};
}

Json as_json(const Breakdown& result, double bandwidth) {
  Json json = {{"context", result.context},
               {"seconds_per_token", result.seconds},
               {"unprofiled_seconds_per_token", result.plain_seconds},
               {"operations", result.operations},
               {"empty_operation_seconds", result.empty_seconds}};
  json["kinds"] = Json::array();
  for (const Line& line : result.lines) {
    Json kind = {{"kind", line.kind},
                 {"seconds", line.seconds},
                 {"share", ratio_or_null(line.seconds, result.seconds)},
                 {"operations", line.operations}};
    kind["bytes"] = line.bytes > 0 ? Json(line.bytes) : Json(nullptr);
    kind["bandwidth_share"] =
        line.bytes > 0 ? ratio_or_null(line.bytes / bandwidth, line.seconds) : Json(nullptr);
    json["kinds"].push_back(std::move(kind));
  }
  const StageSeconds& stages = result.attention.seconds;
  const auto steps = static_cast<double>(result.profiled_steps);
  json["attention_seconds"] = {{"append", stages.append / steps},
                               {"summarise", stages.summarise / steps},
                               {"score", stages.score / steps},
                               {"select", stages.select / steps},
                               {"attend", stages.attend / steps}};
  return json;
}

std::string as_table(const Breakdown& result, double bandwidth) {
  char text[256];
  std::snprintf(text, sizeof text,
                "context %lld: %.2f ms a token (%.2f ms unprofiled), read bandwidth %.1f GB/s\n"
                "%-12s %10s %7s %11s %9s %8s %12s\n",
                static_cast<long long>(result.context), result.seconds * 1e3,
                result.plain_seconds * 1e3, bandwidth * 1e-9, "kind", "us/token", "share",
                "operations", "MiB read", "GB/s", "of bandwidth");
  std::string table = text;
  for (const Line& line : result.lines) {
    std::snprintf(text, sizeof text, "%-12s %10.1f %6.1f%% %11.0f", line.kind.c_str(),
                  line.seconds * 1e6, 100 * line.seconds / result.seconds, line.operations);
    table += text;
    if (line.bytes > 0) {
      const double rate = line.bytes / line.seconds;
      std::snprintf(text, sizeof text, " %9.2f %8.1f %11.0f%%", line.bytes / 1048576, rate * 1e-9,
                    100 * rate / bandwidth);
      table += text;
    }
    table += '\n';
  }
  std::snprintf(text, sizeof text,
                "an operation that does nothing takes %.2f us; %.0f of them %.1f us (%.1f%%)\n",
                result.empty_seconds * 1e6, result.operations,
                result.empty_seconds * result.operations * 1e6,
                100 * result.empty_seconds * result.operations / result.seconds);
  return table + text;
}

std::vector<std::int64_t> checked_contexts(const ProfileOptions& options) {
  require_at_least("--repeat", options.repeat, 1);
  require_at_least("--tokens", options.tokens, 1);
  const std::vector<std::int64_t> contexts = parse_contexts(options.contexts);
  for (const std::int64_t context : contexts) {
    if (context <= options.tokens + 1) {
      throw InvalidArgument("--context " + std::to_string(context) + " leaves no text before the " +
                            std::to_string(options.tokens) + " decoded --tokens; raise it");
    }
  }
  return contexts;
}

int bench_profile(const ProfileOptions& options) {
  catch_interrupts();
  const std::vector<std::int64_t> contexts = checked_contexts(options);
  EngineOptions engine = engine_options(options.common);
  engine.threads = resolved_threads(engine.threads);
  Output output(options.common.output);
  const auto model = load_model(options.common);
  for (const std::int64_t context : contexts) {
    CommonOptions common = options.common;
    common.context = context;
    context_limit(common, model->info());
  }
  const double bandwidth = read_bandwidth(engine.threads);
  std::vector<Breakdown> results;
  for (const std::int64_t context : contexts) {
    for (Breakdown& result : profile_at(model, engine, context, options)) {
      results.push_back(std::move(result));
    }
  }
  if (options.common.json) {
    Json json = common_fields(model->info(), engine.threads);
    json["tokens"] = options.tokens;
    json["repeat"] = options.repeat;
    json["finish"] = interrupted() ? "stopped" : "end";
    json["read_bandwidth"] = bandwidth;
    json["rows"] = Json::array();
    for (const Breakdown& result : results) json["rows"].push_back(as_json(result, bandwidth));
    json["policy"] = policy_fields(engine);
    output.write(dump(json));
  } else {
    for (const Breakdown& result : results) output.write(as_table(result, bandwidth));
  }
  output.finish();
  return interrupted() ? kInterruptedStatus : 0;
}

}  // namespace

void add_profile_bench(CLI::App& bench, int& status) {
  auto options = std::make_shared<ProfileOptions>();
  CLI::App* command = bench.add_subcommand(
      "profile", "Where the time of a decoded token goes, by kind of operation");
  command->add_option("--context", options->contexts, "Contexts in tokens, commas between")
      ->capture_default_str();
  command->add_option("--repeat", options->repeat, "Runs with the profile, and without, in turns")
      ->capture_default_str();
  command->add_option("--tokens", options->tokens, "Tokens decoded in a run")
      ->capture_default_str();
  add_model_options(*command, options->common);
  add_storage_options(*command, options->common);
  add_policy_options(*command, options->common);
  command->callback([options, &status] { status = bench_profile(*options); });
}

}  // namespace quest::cli
