// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "json_output.h"
#include "output.h"
#include "quest/engine.h"
#include "stop_filter.h"

namespace quest::cli {

/// A prompt in the two parts that are read in different ways, and when to stop answering.
struct CompletionRequest {
  std::vector<Token> prefill;    ///< read with full attention
  std::vector<Token> feed;       ///< then read through the sparse path; may be empty
  std::int64_t feed_budget = 0;  ///< budget of the policy while reading `feed`; 0: unchanged
  std::int64_t max_tokens = 0;
  StopRule stop;
};

/// What came of it.
struct Completion {
  std::int64_t prefill_tokens = 0;  ///< really read, also when interrupted
  double prefill_seconds = 0;
  std::int64_t feed_tokens = 0;
  double feed_seconds = 0;
  EngineCounters feed_counters;
  Certificate certificate;  ///< that the policy asked for
  Generation generation;    ///< as the engine ended it
  std::string text;         ///< up to the stop rule
  std::string finish;       ///< "end", "stop", "length", "context" or "stopped" (by the user)
};

/// Reads the prompt into the session and answers. `show` receives text as it appears.
/// Ctrl-C ends any part early, with what there is.
Completion complete(Session& session, Engine& engine, const CompletionRequest& request,
                    const SamplingOptions& sampling,
                    const std::function<void(std::string_view)>& show);

/// The second half of `complete`: answers from where the session stands and fills in
/// `generation`, `text` and `finish`.
void generate_text(Session& session, const CompletionRequest& request,
                   const SamplingOptions& sampling,
                   const std::function<void(std::string_view)>& show, Completion& completion);

/// The measured fields of `run` and `ask`.
Json completion_fields(const Completion& completion);

/// A line about speed and bytes for people, and one about the certificate if there is one.
std::string summary_line(const Completion& completion);

/// The shared body of `run` and `ask`: checks the prompt against the context, makes the engine,
/// completes and reports on `output`. `engine_settings` are those of the options, the context as
/// given; `prompt` turns the model's tokenizer into a request. Returns the exit status.
int run_completion(const CommonOptions& options, EngineOptions engine_settings, Output& output,
                   const std::function<CompletionRequest(const Tokenizer&)>& prompt);

}  // namespace quest::cli
