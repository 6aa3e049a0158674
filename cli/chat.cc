// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <iostream>
#include <memory>
#include <string>
#include <utility>

#include "commands.h"
#include "conversation.h"
#include "interrupt.h"
#include "json_output.h"
#include "output.h"
#include "quest/error.h"

namespace quest::cli {
namespace {

struct ChatOptions {
  CommonOptions common;
  std::int64_t max_tokens = 512;
};

void say(const std::string& line) { std::fprintf(stderr, "quest: %s\n", line.c_str()); }

// A line from standard input; false at its end or after Ctrl-C.
bool read_line(std::string& line) {
  if (isatty(STDIN_FILENO) == 1) std::fputs("> ", stderr);
  return static_cast<bool>(std::getline(std::cin, line)) && !interrupted();
}

class Chat {
 public:
  Chat(const ChatOptions& options, Engine& engine, Output& output)
      : options_(options),
        engine_(engine),
        output_(output),
        session_(engine),
        conversation_(session_, engine) {}

  int loop() {
    for (std::string line;;) {
      catch_interrupts();
      if (!read_line(line)) return interrupted() ? kInterruptedStatus : 0;
      if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
      if (line == "/exit") return 0;
      if (line == "/reset") {
        conversation_.reset();
        say("history forgotten");
        continue;
      }
      turn(line);
      // Somebody at a terminal stops one answer; a script is stopped as a whole.
      if (interrupted() && isatty(STDIN_FILENO) != 1) return kInterruptedStatus;
    }
  }

  const Json& turns() const { return turns_; }

 private:
  void turn(const std::string& line) {
    CompletionRequest request = conversation_.next_turn(line);
    const auto tokens = static_cast<std::int64_t>(request.prefill.size() + request.feed.size());
    const std::int64_t context = engine_.options().context;
    // One more for the last token of the answer before, which is read first.
    const std::int64_t room = context - session_.length() - tokens - 1;
    if (room < 1) {
      say("this turn of " + std::to_string(tokens) +
          " tokens does not fit: " + std::to_string(session_.length()) + " of the context's " +
          std::to_string(context) + " are in use; /reset forgets the history, -c sets the context");
      return;
    }
    request.max_tokens = std::min(options_.max_tokens, room);
    const Completion completion =
        complete(session_, engine_, request, options_.common.sampling, [&](std::string_view text) {
          if (!options_.common.json) output_.write(text);
        });
    report(line, completion);
    if (completion.prefill_tokens + completion.feed_tokens < tokens) {
      conversation_.abandon();
    } else {
      conversation_.answered(line, completion);
    }
  }

  void report(const std::string& line, const Completion& completion) {
    if (!options_.common.json) {
      output_.write("\n");
      if (completion.finish == "length") say("cut after -n " + std::to_string(options_.max_tokens));
      return;
    }
    Json fields = {{"user", line}};
    fields.update(completion_fields(completion));
    turns_.push_back(std::move(fields));
  }

  const ChatOptions& options_;
  Engine& engine_;
  Output& output_;
  Session session_;
  Conversation conversation_;
  Json turns_ = Json::array();
};

int chat(const ChatOptions& options) {
  require_at_least("-n", options.max_tokens, 1);
  EngineOptions settings = engine_options(options.common);
  Output output(options.common.output);
  const auto model = load_model(options.common);
  settings.context = context_limit(options.common, model->info());
  if (!model->tokenizer().has_chat_template()) {
    throw Error("'" + model->info().path +
                "' carries no chat template; use quest run or quest ask with it");
  }
  Engine engine(model, settings);
  Chat loop(options, engine, output);
  if (isatty(STDIN_FILENO) == 1) say("/reset forgets the history, /exit or Ctrl-D ends");
  const int status = loop.loop();
  if (options.common.json) {
    Json json = engine_fields(engine);
    json["turns"] = loop.turns();
    json["policy"] = policy_fields(engine.options());
    output.write(dump(json));
  }
  output.finish();
  return status;
}

}  // namespace

void add_chat_command(CLI::App& app, int& status) {
  auto options = std::make_shared<ChatOptions>();
  CLI::App* command = app.add_subcommand("chat", "Talk with a model, one line a turn");
  command->add_option("-n,--tokens", options->max_tokens, "Tokens of one answer at most")
      ->capture_default_str();
  add_model_options(*command, options->common);
  add_device_option(*command, options->common);
  add_cache_options(*command, options->common);
  add_policy_options(*command, options->common);
  add_sampling_options(*command, options->common);
  command->callback([options, &status] { status = chat(*options); });
}

}  // namespace quest::cli
