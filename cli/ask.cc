// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "chat_prompt.h"
#include "commands.h"
#include "completion.h"
#include "input.h"
#include "quest/error.h"

namespace quest::cli {
namespace {

struct AskOptions {
  CommonOptions common;
  std::string document;
  std::string question;
  std::int64_t max_tokens = 64;
  std::optional<std::int64_t> question_budget;
  std::vector<std::string> stop;
  bool chat = false;
  bool multiline = false;
};

int ask(const AskOptions& options) {
  require_at_least("-n", options.max_tokens, 1);
  if (options.question.empty()) {
    throw InvalidArgument("the prompt is empty: QUESTION needs at least one word");
  }
  const EngineOptions engine =
      engine_options(options.common);  // bad options are refused before anything is read
  const std::int64_t question_budget =
      checked_question_budget(options.question_budget, engine.policy.budget, engine.page_size);
  Output output(options.common.output);
  const std::string document = without_final_newline(read_input(options.document));
  if (document.empty()) {
    throw InvalidArgument("the document '" + options.document +
                          "' is empty; to ask without one, use " + "quest run -p QUESTION");
  }
  return run_completion(options.common, engine, output, [&](const Tokenizer& tokenizer) {
    const auto split = options.chat ? split_chat : split_plain;
    SplitPrompt prompt = split(tokenizer, document, options.question);
    CompletionRequest request;
    request.prefill = std::move(prompt.document);
    request.feed = std::move(prompt.question);
    // Where to look is decided while the question is read, a few tokens once: missing a page here
    // costs the answer, reading more costs almost nothing.
    request.feed_budget = question_budget;
    request.max_tokens = options.max_tokens;
    request.stop.texts = options.stop;
    // A model that merely continues the text goes on inventing after its answer.
    request.stop.first_line = !options.chat && !options.multiline && options.stop.empty();
    return request;
  });
}

}  // namespace

void add_ask_command(CLI::App& app, int& status) {
  auto options = std::make_shared<AskOptions>();
  CLI::App* command = app.add_subcommand("ask", "Answer a question about a document");
  command->add_option("DOC", options->document, "Text file; -: standard input")->required();
  command->add_option("QUESTION", options->question, "The question, after the document")
      ->required();
  command->add_option("-n,--tokens", options->max_tokens, "Tokens to write at most")
      ->capture_default_str();
  command->add_option("--question-budget", options->question_budget,
                      "Budget while the question is read [4 times --budget]");
  command->add_option("--stop", options->stop,
                      "Stop before this text, not at the end of the answer's first line; may be "
                      "repeated");
  command->add_flag("--multiline", options->multiline, "Go on after the first line of the answer");
  command->add_flag("--chat", options->chat,
                    "Put document and question into the model's chat template");
  add_model_options(*command, options->common);
  add_device_option(*command, options->common);
  add_cache_options(*command, options->common);
  add_policy_options(*command, options->common);
  add_sampling_options(*command, options->common);
  command->callback([options, &status] { status = ask(*options); });
}

}  // namespace quest::cli
