// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "quest/eval/answer.h"

#include "eval/branch.h"
#include "quest/error.h"

namespace quest::eval {
namespace {

void check(const AnswerRequest& request) {
  if (request.material.empty()) throw InvalidArgument("evaluation: the material has no token");
  if (request.question.empty()) throw InvalidArgument("evaluation: the question has no token");
  if (request.max_tokens < 1) {
    throw InvalidArgument("evaluation: an answer of " + std::to_string(request.max_tokens) +
                          " tokens; allow at least 1");
  }
  const auto tokens = static_cast<std::int64_t>(request.material.size());
  for (const Evidence& evidence : request.evidence) {
    for (const TokenRange& mention : evidence) {
      if (mention.begin >= 0 && mention.begin < mention.end && mention.end <= tokens) continue;
      throw InvalidArgument("evaluation: evidence at tokens [" + std::to_string(mention.begin) +
                            ", " + std::to_string(mention.end) + ") of a material of " +
                            std::to_string(tokens) + "; name tokens of the material");
    }
  }
}

bool injects(const Arm& arm) { return arm.baseline && arm.baseline->kind == BaselineKind::kInject; }

/// The pages of all evidence go into the lists of an arm that injects.
void inject_evidence(const Arm& arm, const AnswerRequest& request, std::int32_t page_size) {
  if (!injects(arm)) return;
  std::vector<TokenRange> mentions;
  for (const Evidence& evidence : request.evidence) {
    mentions.insert(mentions.end(), evidence.begin(), evidence.end());
  }
  arm.baseline->baselines->inject(pages_of(mentions, page_size), arm.baseline->layers);
}

/// Nothing if `go_on` turned false on the way.
std::optional<ArmAnswer> answer_on_fork(Engine& engine, const Session& material, const Arm& arm,
                                        const AnswerRequest& request,
                                        const std::function<bool()>& go_on) {
  const ModelInfo& info = engine.model().info();
  const std::int32_t page_size = engine.options().page_size;
  const auto read_on = [&](std::int64_t, std::int64_t) { return go_on(); };
  ArmAnswer result;
  Session session = material.fork();
  const ForkState state(arm, material.sequence(), session.sequence());
  const ArmInUse use(arm);
  inject_evidence(arm, request, page_size);
  engine.set_policy(arm.question);
  engine.reset_counters();
  const bool probed = request.probe != nullptr && !request.evidence.empty() &&
                      !arm.question.dense && !(arm.baseline && evicts(arm.baseline->kind));
  const bool read = [&] {
    std::optional<EvidenceProbe::Watch> watch;
    if (probed) watch.emplace(*request.probe, request.evidence.front());
    return arm.question.dense ? session.prefill(request.question, read_on)
                              : session.feed(request.question, read_on);
  }();
  if (!read) return std::nullopt;
  if (probed) result.reach = request.probe->reach();
  result.question = cost_of(engine.counters(), arm.question, info, page_size);

  engine.set_policy(arm.policy);
  bool stopped = false;
  GenerateOptions options;
  options.max_tokens = request.max_tokens;
  options.on_text = [&](std::string_view text) {
    result.text += text;
    stopped = !go_on();
    return !stopped && !(request.complete && request.complete(result.text));
  };
  const Generation generation = session.generate(options);
  if (stopped) return std::nullopt;
  result.text = generation.text;
  result.finish = generation.finish;
  result.answer = cost_of(generation.counters, arm.policy, info, page_size);
  if (injects(arm)) result.injected = arm.baseline->baselines->injected();
  return result;
}

}  // namespace

ArmCost ArmAnswer::cost() const {
  ArmCost sum = question;
  sum += answer;
  return sum;
}

std::int64_t answer_cache_tokens(std::int64_t material, std::int64_t question,
                                 std::int64_t max_tokens, std::int32_t page_size) {
  return forked_cache_tokens(material, question + max_tokens, 1, page_size);
}

std::optional<Answers> answer(Engine& engine, const AnswerRequest& request,
                              std::span<const Arm> arms, const Progress& progress) {
  check(request);
  const PolicyGuard guard(engine);
  const auto total = static_cast<std::int64_t>(request.material.size());
  // The last token of the material is announced once the answers are there.
  std::int64_t reported = 0;
  const auto go_on = [&] { return !progress || progress(reported, total); };
  Session material(engine);
  const PromptWatch watch(arms, material);
  const bool read = material.prefill(request.material, [&](std::int64_t done, std::int64_t) {
    reported = done - 1;
    return go_on();
  });
  if (!read) return std::nullopt;

  Answers answers;
  auto full = answer_on_fork(engine, material, full_arm(), request, go_on);
  if (!full) return std::nullopt;
  answers.full = std::move(*full);
  for (const Arm& arm : arms) {
    auto result = answer_on_fork(engine, material, arm, request, go_on);
    if (!result) return std::nullopt;
    answers.arms.push_back(std::move(*result));
  }
  reported = total;
  go_on();
  return answers;
}

}  // namespace quest::eval
