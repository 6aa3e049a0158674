// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "completion.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>

#include "certificate_output.h"
#include "interrupt.h"
#include "progress.h"
#include "quest/error.h"

namespace quest::cli {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

bool read_prompt(Session& session, Engine& engine, const CompletionRequest& request,
                 Completion& completion) {
  {
    ProgressBar bar("Reading");
    const auto start = Clock::now();
    const bool done = request.prefill.empty() ||
                      session.prefill(request.prefill, bar.callback(completion.prefill_tokens));
    completion.prefill_seconds = seconds_since(start);
    if (!done || interrupted()) return false;
    completion.prefill_tokens = static_cast<std::int64_t>(request.prefill.size());
  }
  if (request.feed.empty()) return true;
  ProgressBar bar("Reading the question");
  engine.reset_counters();
  const SelectionPolicy answer_policy = engine.options().policy;
  if (request.feed_budget > 0) {
    engine.set_policy(answer_policy.with_budget(request.feed_budget, engine.options().page_size));
  }
  const auto start = Clock::now();
  const bool done = session.feed(request.feed, bar.callback(completion.feed_tokens));
  engine.set_policy(answer_policy);
  completion.feed_seconds = seconds_since(start);
  completion.feed_counters = engine.counters();
  if (!done || interrupted()) return false;
  completion.feed_tokens = static_cast<std::int64_t>(request.feed.size());
  return true;
}

void check_fits(const CompletionRequest& request, std::int64_t limit, const ModelInfo& info) {
  const auto tokens = static_cast<std::int64_t>(request.prefill.size() + request.feed.size());
  if (tokens == 0) throw InvalidArgument("the prompt is empty; give at least one word");
  if (tokens < limit) return;
  std::string remedy = "shorten it";
  if (tokens < info.context) {
    remedy = "raise -c, up to the model's " + std::to_string(info.context) + ", or shorten it";
  } else {
    remedy = "the model was trained for " + std::to_string(info.context) +
             "; shorten the text, or insist with -c " +
             std::to_string(tokens + request.max_tokens) + " --long-context";
  }
  throw InvalidArgument("the prompt has " + std::to_string(tokens) +
                        " tokens and leaves no room for an answer in a context of " +
                        std::to_string(limit) + " tokens: " + remedy);
}

}  // namespace

void generate_text(Session& session, const CompletionRequest& request,
                   const SamplingOptions& sampling,
                   const std::function<void(std::string_view)>& show, Completion& completion) {
  StopFilter filter(request.stop);
  const auto pass_on = [&](const std::string& text) {
    if (text.empty()) return;
    completion.text += text;
    if (show) show(text);
  };
  GenerateOptions generate;
  generate.max_tokens = request.max_tokens;
  generate.sampling = sampling;
  generate.on_text = [&](std::string_view piece) {
    pass_on(filter.push(piece));
    return !filter.stopped() && !interrupted();
  };
  completion.generation = session.generate(generate);
  pass_on(filter.finish());
  completion.finish = interrupted()      ? name_of(FinishReason::kStopped)
                      : filter.stopped() ? "stop"
                                         : name_of(completion.generation.finish);
}

Completion complete(Session& session, Engine& engine, const CompletionRequest& request,
                    const SamplingOptions& sampling,
                    const std::function<void(std::string_view)>& show) {
  Completion completion;
  completion.certificate = engine.options().policy.certificate;
  if (!read_prompt(session, engine, request, completion)) {
    completion.finish = name_of(FinishReason::kStopped);
    return completion;
  }
  generate_text(session, request, sampling, show, completion);
  return completion;
}

namespace {

// The part that was read through the sparse path before the answer (SPEC S9.1).
Json question_fields(const Completion& completion) {
  const AttentionCounters& attention = completion.feed_counters.attention;
  return {{"tokens", completion.feed_tokens},
          {"seconds", completion.feed_seconds},
          {"bytes_read", bytes_read_fields(attention)},
          {"sparse_lists", attention.sparse_lists},
          {"dense_lists", attention.dense_lists},
          {"certificate", certificate_fields(completion.certificate, attention.certificates)}};
}

}  // namespace

Json completion_fields(const Completion& completion) {
  const Generation& generation = completion.generation;
  const AttentionCounters& attention = generation.counters.attention;
  const auto steps = static_cast<double>(generation.steps);
  return {
      {"text", completion.text},
      {"finish", completion.finish},
      {"prompt_tokens", completion.prefill_tokens + completion.feed_tokens},
      {"prefill_tokens", completion.prefill_tokens},
      {"generated_tokens", generation.tokens.size()},
      {"prefill_seconds", completion.prefill_seconds},
      {"prefill_tokens_per_second",
       ratio_or_null(static_cast<double>(completion.prefill_tokens), completion.prefill_seconds)},
      {"question", question_fields(completion)},
      {"decode_seconds", generation.seconds},
      {"decode_tokens_per_second", ratio_or_null(steps, generation.seconds)},
      {"kv_bytes_read_per_token",
       ratio_or_null(static_cast<double>(attention.bytes_read()), steps)},
      {"kv_bytes_dense_per_token",
       ratio_or_null(static_cast<double>(attention.dense_bytes), steps)},
      {"bytes_read", bytes_read_fields(attention)},
      {"seconds", seconds_fields(generation.counters)},
      {"pages_read", attention.pages_read},
      {"sparse_lists", attention.sparse_lists},
      {"dense_lists", attention.dense_lists},
      {"certificate", certificate_fields(completion.certificate, attention.certificates)}};
}

std::string summary_line(const Completion& completion) {
  const Generation& generation = completion.generation;
  const AttentionCounters& attention = generation.counters.attention;
  const auto prompt = completion.prefill_tokens + completion.feed_tokens;
  const double prompt_seconds = completion.prefill_seconds + completion.feed_seconds;
  char line[256];
  int used = std::snprintf(line, sizeof line, "quest: %lld tokens read in %.2f s",
                           static_cast<long long>(prompt), prompt_seconds);
  std::string text(line, static_cast<std::size_t>(used));
  if (generation.steps > 0 && generation.seconds > 0 && attention.dense_bytes > 0) {
    const auto steps = static_cast<double>(generation.steps);
    constexpr double kMiB = 1024.0 * 1024.0;
    used = std::snprintf(line, sizeof line,
                         "; %zu written at %.1f tokens/s, reading %.2f of %.2f MiB of KV a token",
                         generation.tokens.size(), steps / generation.seconds,
                         static_cast<double>(attention.bytes_read()) / steps / kMiB,
                         static_cast<double>(attention.dense_bytes) / steps / kMiB);
    text.append(line, static_cast<std::size_t>(used));
  }
  text += "; finish: " + completion.finish;
  const std::string certified = certificate_line(completion.certificate, attention.certificates);
  if (!certified.empty()) text += "\nquest: " + certified;
  return text;
}

int run_completion(const CommonOptions& options, EngineOptions engine_settings, Output& output,
                   const std::function<CompletionRequest(const Tokenizer&)>& prompt) {
  catch_interrupts();
  const auto model = load_model(options);
  const std::int64_t limit = context_limit(options, model->info());
  const CompletionRequest request = prompt(model->tokenizer());
  check_fits(request, limit, model->info());
  // One request: the cache needs no more pages than prompt and answer can fill.
  const auto tokens = static_cast<std::int64_t>(request.prefill.size() + request.feed.size());
  engine_settings.context = std::min(limit - tokens, request.max_tokens) + tokens;

  Engine engine(model, engine_settings);
  Session session(engine);
  const bool stream = !options.json;
  const Completion completion =
      complete(session, engine, request, options.sampling, [&](std::string_view text) {
        if (stream) output.write(text);
      });
  if (options.json) {
    Json json = engine_fields(engine);
    json.update(completion_fields(completion));
    json["policy"] = policy_fields(engine.options());
    output.write(dump(json));
  }
  output.finish();
  if (!options.json) std::fprintf(stderr, "%s\n", summary_line(completion).c_str());
  return interrupted() ? kInterruptedStatus : 0;
}

}  // namespace quest::cli
