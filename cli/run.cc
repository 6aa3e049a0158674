// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "chat_prompt.h"
#include "commands.h"
#include "completion.h"
#include "input.h"
#include "quest/error.h"

namespace quest::cli {
namespace {

struct RunOptions {
  CommonOptions common;
  std::optional<std::string> prompt;
  std::optional<std::string> file;
  std::int64_t max_tokens = 128;
  std::vector<std::string> stop;
  bool chat = false;
};

std::string prompt_text(const RunOptions& options) {
  if (options.prompt.has_value() == options.file.has_value()) {
    throw InvalidArgument("give the prompt either with -p TEXT or with -f FILE");
  }
  std::string text =
      options.prompt ? *options.prompt : without_final_newline(read_input(*options.file));
  if (text.empty()) {
    throw InvalidArgument("the prompt" + (options.file ? " in '" + *options.file + "'" : "") +
                          " is empty; give at least one word");
  }
  return text;
}

std::vector<Token> prompt_tokens(const Tokenizer& tokenizer, const std::string& text, bool chat) {
  if (!chat) return tokenizer.tokenize(text, true, false);
  const ChatMessage message{"user", text};
  const std::string rendered = tokenizer.apply_chat_template({&message, 1});
  return tokenize_template(tokenizer, rendered, {text}, true);
}

int run(const RunOptions& options) {
  require_at_least("-n", options.max_tokens, 1);
  const EngineOptions engine =
      engine_options(options.common);  // bad options are refused before anything is read
  Output output(options.common.output);
  const std::string text = prompt_text(options);
  return run_completion(options.common, engine, output, [&](const Tokenizer& tokenizer) {
    CompletionRequest request;
    request.prefill = prompt_tokens(tokenizer, text, options.chat);
    request.max_tokens = options.max_tokens;
    request.stop.texts = options.stop;
    return request;
  });
}

}  // namespace

void add_run_command(CLI::App& app, int& status) {
  auto options = std::make_shared<RunOptions>();
  CLI::App* command = app.add_subcommand("run", "Continue a prompt");
  command->add_option("-p,--prompt", options->prompt, "The prompt");
  command->add_option("-f,--file", options->file, "File that holds the prompt; -: standard input");
  command->add_option("-n,--tokens", options->max_tokens, "Tokens to write at most")
      ->capture_default_str();
  command->add_option("--stop", options->stop, "Stop before this text; may be repeated");
  command->add_flag("--chat", options->chat, "Put the prompt into the model's chat template");
  add_model_options(*command, options->common);
  add_device_option(*command, options->common);
  add_cache_options(*command, options->common);
  add_policy_options(*command, options->common);
  add_sampling_options(*command, options->common);
  command->callback([options, &status] { status = run(*options); });
}

}  // namespace quest::cli
