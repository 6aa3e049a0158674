// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>

#include "engine/utf8_buffer.h"
#include "quest/engine.h"
#include "quest/error.h"

namespace quest {

std::string_view name_of(FinishReason reason) {
  switch (reason) {
    case FinishReason::kEndOfText:
      return "end";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kContextFull:
      return "context";
    case FinishReason::kStopped:
      return "stopped";
  }
  return "?";
}

Session::Session(Engine& engine) : engine_(engine), sequence_(engine.cache().create()) {}
Session::~Session() { engine_.cache().release(sequence_); }

Session::Session(const Session& parent, SequenceId sequence)
    : engine_(parent.engine_),
      sequence_(sequence),
      logits_(parent.logits_),
      unread_(parent.unread_) {}

Session Session::fork() const { return {*this, engine_.cache().fork(sequence_)}; }

std::int64_t Session::length() const { return engine_.cache().length(sequence_); }
std::span<const float> Session::logits() const { return logits_; }

bool Session::prefill(std::span<const Token> tokens, const Progress& progress) {
  return read(tokens, false, progress);
}

bool Session::feed(std::span<const Token> tokens, const Progress& progress) {
  return read(tokens, true, progress);
}

void Session::step(std::span<const Token> tokens, bool sparse) {
  const StepRequest request{sequence_, tokens, sparse, false};
  const auto logits = engine_.step({&request, 1});
  logits_.assign(logits.begin(), logits.end());
}

bool Session::read(std::span<const Token> tokens, bool sparse, const Progress& progress) {
  read_last_generated();
  const auto chunk = static_cast<std::size_t>(engine_.options().chunk);
  for (std::size_t begin = 0; begin < tokens.size(); begin += chunk) {
    const auto part = tokens.subspan(begin, std::min(chunk, tokens.size() - begin));
    step(part, sparse);
    const auto done = static_cast<std::int64_t>(begin + part.size());
    if (progress && !progress(done, static_cast<std::int64_t>(tokens.size()))) return false;
  }
  return true;
}

void Session::read_last_generated() {
  if (!unread_) return;
  step({&*unread_, 1}, true);
  unread_.reset();
}

void Session::truncate(std::int64_t length) {
  engine_.cache().truncate(sequence_, length);
  logits_.clear();
  unread_.reset();
}

Generation Session::generate(const GenerateOptions& options) {
  if (logits_.empty()) throw InvalidArgument("generate needs at least one token read before it");
  if (options.max_tokens < 1) {
    throw InvalidArgument("max_tokens " + std::to_string(options.max_tokens) +
                          " is below 1; ask for at least one token");
  }
  read_last_generated();
  const Tokenizer& tokenizer = engine_.model().tokenizer();
  Sampler sampler(tokenizer, options.sampling);
  Utf8Buffer pending;
  Generation result;
  engine_.reset_counters();
  const auto emit = [&](std::string_view text) {
    result.text += text;
    return text.empty() || !options.on_text || options.on_text(text);
  };
  for (;;) {
    const Token token = sampler.sample(logits_);
    if (!options.ignore_end && tokenizer.ends_generation(token)) {
      result.finish = FinishReason::kEndOfText;
      break;
    }
    result.tokens.push_back(token);
    unread_ = token;
    if (!emit(pending.push(tokenizer.piece(token)))) {
      result.finish = FinishReason::kStopped;
      break;
    }
    if (static_cast<std::int64_t>(result.tokens.size()) == options.max_tokens) break;
    if (length() == engine_.options().context) {
      result.finish = FinishReason::kContextFull;
      break;
    }
    const auto start = std::chrono::steady_clock::now();
    read_last_generated();
    result.seconds +=
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    result.steps += 1;
  }
  emit(pending.flush());
  result.counters = engine_.counters();
  return result;
}

}  // namespace quest
