// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "quest/eval/longbench.h"

#include <algorithm>

#include "quest/error.h"

namespace quest::eval {
namespace {

struct AnswerTokens {
  std::string_view dataset;
  std::int64_t tokens;
};

/// LongBench's own limits of the sets that its F1 and ROUGE-L score in English.
constexpr AnswerTokens kAnswerTokens[] = {
    {"narrativeqa", 128}, {"qasper", 128},     {"multifieldqa_en", 64}, {"hotpotqa", 32},
    {"2wikimqa", 32},     {"musique", 32},     {"triviaqa", 32},        {"gov_report", 512},
    {"qmsum", 512},       {"multi_news", 512}, {"samsum", 128}};

}  // namespace

std::int64_t usual_answer_tokens(std::string_view dataset, AnswerMetric metric) {
  for (const AnswerTokens& known : kAnswerTokens) {
    if (dataset == known.dataset) return known.tokens;
  }
  return metric == AnswerMetric::kRougeL ? 512 : 64;
}

LongBenchPrompt longbench_prompt(const Tokenizer& tokenizer, const LongBenchSample& sample,
                                 std::int64_t limit, std::int64_t max_tokens) {
  std::vector<Token> material = tokenizer.tokenize(sample.context, true, false);
  std::vector<Token> question = tokenizer.tokenize(sample.query, false, false);
  LongBenchPrompt prompt;
  prompt.tokens = static_cast<std::int64_t>(material.size() + question.size());
  if (prompt.tokens > limit) {
    const std::int64_t half = std::max<std::int64_t>(limit / 2, 0);
    const auto questions = static_cast<std::int64_t>(question.size());
    const std::int64_t tail = std::max<std::int64_t>(half - questions, 0);  // of the material
    const std::int64_t head =
        std::min<std::int64_t>(half, static_cast<std::int64_t>(material.size()) - tail);
    material.erase(material.begin() + head, material.end() - tail);
    question.erase(question.begin(), question.end() - std::min(half, questions));
    prompt.left_out = prompt.tokens - static_cast<std::int64_t>(material.size() + question.size());
  }
  if (material.empty() || question.empty()) {
    throw InvalidArgument("sample '" + sample.id + "' has no " +
                          (material.empty() ? "material" : "question") + " in a context of " +
                          std::to_string(limit) + " tokens; raise it");
  }
  prompt.request.material = std::move(material);
  prompt.request.question = std::move(question);
  prompt.request.max_tokens = max_tokens;
  return prompt;
}

std::string_view scored_part(std::string_view dataset, std::string_view answer) {
  if (dataset != "triviaqa" && dataset != "samsum") return answer;
  answer.remove_prefix(std::min(answer.find_first_not_of('\n'), answer.size()));
  return answer.substr(0, answer.find('\n'));
}

double longbench_score(const LongBenchSample& sample, std::string_view answer) {
  return answer_score(sample.metric, scored_part(sample.dataset, answer), sample.answers);
}

}  // namespace quest::eval
