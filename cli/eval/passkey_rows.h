// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "json_output.h"
#include "quest/eval/arm.h"
#include "quest/eval/passkey.h"

namespace quest::cli {

/// One arm's answer in one trial.
struct PasskeyOutcome {
  eval::AnswerClass answer_class = eval::AnswerClass::kMiss;
  eval::ArmCost question;
  eval::ArmCost answer;
  eval::InjectedReads injected;
  std::optional<eval::EvidenceReach> reach;
};

// Answers on their way through a resume file, full attention first.
Json pack_answers(const eval::PasskeyPrompt& prompt, const eval::Answers& answers);
std::vector<PasskeyOutcome> unpack_outcomes(const Json& json);

/// Trials of one variant, length and depth under one arm.
struct PasskeyRow {
  eval::PasskeyVariant variant = eval::PasskeyVariant::kPlain;
  std::int64_t length = 0;
  double depth = 0;
  std::size_t arm = 0;
  std::int64_t trials = 0;
  std::int64_t full_hits = 0;
  std::int64_t full_truncated = 0;
  std::int64_t hits = 0;
  std::int64_t hits_where_full = 0;
  std::int64_t truncated = 0;
  std::array<std::int64_t, 3> place_trials{};
  std::array<std::int64_t, 3> place_hits{};
  eval::ArmCost question;
  eval::ArmCost answer;
  eval::InjectedReads injected;
  // Of the trials in which the question's last token left pages out.
  std::int64_t probed = 0;
  std::vector<double> first_layers;  ///< of those that reach the evidence at all
  std::int64_t probed_lists = 0;
  std::int64_t probed_hits = 0;

  eval::ArmCost cost() const;
  std::int64_t never() const;  ///< probed trials in which no list reaches the evidence
};

/// Enters what `arm` answered in a trial; `outcomes` are those of all arms, full attention first.
void add_outcome(const eval::PasskeyTrial& trial, const std::vector<PasskeyOutcome>& outcomes,
                 std::size_t arm, std::vector<PasskeyRow>& rows);

/// trials, full_hits, hits and rows. Throws Error for a row that was not sparse.
Json row_fields(const std::vector<PasskeyRow>& rows, const std::vector<eval::Arm>& arms);

std::string row_table(const std::vector<PasskeyRow>& rows, const std::vector<eval::Arm>& arms);

}  // namespace quest::cli
