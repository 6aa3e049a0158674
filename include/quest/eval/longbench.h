// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "quest/eval/answer.h"
#include "quest/eval/answer_metrics.h"
#include "quest/tokenizer.h"

namespace quest::eval {

/// One sample of a question-answering or summarising task.
struct LongBenchSample {
  std::string id;
  std::string dataset;
  AnswerMetric metric = AnswerMetric::kQaF1;
  std::string context;  ///< the material, its leading instruction included
  std::string query;    ///< closing instruction and question, read through the sparse path
  std::vector<std::string> answers;  ///< accepted ones, at least one
  std::int64_t max_tokens = 0;       ///< of the answer; 0: the data set's usual number
};

/// Tokens that LongBench allows an answer of this data set; a number of the metric's for others.
std::int64_t usual_answer_tokens(std::string_view dataset, AnswerMetric metric);

struct LongBenchPrompt {
  AnswerRequest request;
  std::int64_t tokens = 0;    ///< of the whole prompt, before anything was cut
  std::int64_t left_out = 0;  ///< cut from its middle
};

/// The prompt in at most `limit` tokens. A longer one loses its middle, as LongBench does it: the
/// first and the last limit / 2 tokens stay. Throws InvalidArgument if material or question would
/// have no token.
LongBenchPrompt longbench_prompt(const Tokenizer& tokenizer, const LongBenchSample& sample,
                                 std::int64_t limit, std::int64_t max_tokens);

/// The part of an answer that LongBench scores: the first line that is not empty for the data sets
/// whose prompt shows examples, else the whole.
std::string_view scored_part(std::string_view dataset, std::string_view answer);

/// The answer's score, 0 to 1.
double longbench_score(const LongBenchSample& sample, std::string_view answer);

}  // namespace quest::eval
