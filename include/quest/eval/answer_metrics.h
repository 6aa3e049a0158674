// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace quest::eval {

/// How an answer is compared with the accepted ones, as LongBench does.
enum class AnswerMetric { kQaF1, kRougeL };

/// "qa_f1", "rouge_l".
std::string_view name_of(AnswerMetric metric);
std::optional<AnswerMetric> parse_answer_metric(std::string_view text);

/// Lower case, without ASCII punctuation, without the words a, an and the, white space reduced to
/// single spaces.
std::string normalised_answer(std::string_view text);

/// Harmonic mean of precision and recall over the words of the normalised texts, counted with
/// multiplicity; 0 without a common word.
double qa_f1(std::string_view answer, std::string_view truth);

/// ROUGE-L of whole texts as the Python package `rouge` computes it for LongBench: sentences end at
/// full stops, words at white space; the words of a longest common subsequence of every pair of
/// sentences form one set, which is compared with the sets of all words. F1, 1e-8 in its
/// denominator; 0 for an empty text.
double rouge_l(std::string_view answer, std::string_view truth);

/// The best score over the accepted answers, 0 to 1.
double answer_score(AnswerMetric metric, std::string_view answer,
                    std::span<const std::string> truths);

}  // namespace quest::eval
