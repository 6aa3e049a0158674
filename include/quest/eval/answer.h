// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quest/eval/arm.h"
#include "quest/eval/evidence.h"

namespace quest::eval {

/// A question about a material (SPEC S9.1): the material is read once with full attention, the
/// question and the answer go through each arm on a fork of its own.
struct AnswerRequest {
  std::vector<Token> material;
  std::vector<Token> question;
  std::int64_t max_tokens = 0;  ///< of the answer
  /// True once the text so far holds all that is wanted; empty: until the model or the limit ends.
  std::function<bool(std::string_view text)> complete;
  /// Facts of the material that the answer needs, in the order in which it does. May be empty.
  std::vector<Evidence> evidence;
  EvidenceProbe* probe = nullptr;  ///< of this engine; null: nobody asks what reaches the evidence
};

struct ArmAnswer {
  std::string text;
  FinishReason finish = FinishReason::kLength;
  ArmCost question;
  ArmCost answer;
  InjectedReads injected;  ///< part of the costs, of question and answer together
  /// How far the question's last token reached the first evidence. Nothing without a probe or
  /// evidence, for full attention, and for baselines that evict tokens: their pages may be holed.
  std::optional<EvidenceReach> reach;

  /// The answer may have been about to come: a class of its own, not a miss.
  bool cut() const {
    return finish == FinishReason::kLength || finish == FinishReason::kContextFull;
  }
  ArmCost cost() const;
};

struct Answers {
  ArmAnswer full;               ///< full attention on the same request
  std::vector<ArmAnswer> arms;  ///< as the arms were given
};

/// Greedy answers. Nothing if `progress`, called with tokens of the material done, stopped it; its
/// last call comes after the last answer. The engine needs `answer_cache_tokens` of context free;
/// its policy is as before afterwards. Throws InvalidArgument for an empty material, an empty
/// question or max_tokens below 1.
std::optional<Answers> answer(Engine& engine, const AnswerRequest& request,
                              std::span<const Arm> arms, const Progress& progress = {});

std::int64_t answer_cache_tokens(std::int64_t material, std::int64_t question,
                                 std::int64_t max_tokens, std::int32_t page_size);

}  // namespace quest::eval
