// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "eval/baseline_state.h"

#include <string>
#include <utility>

#include "quest/error.h"

namespace quest::eval {
namespace {

[[noreturn]] void refuse(SequenceId sequence, const std::string& fault) {
  throw InvalidArgument("baseline: sequence " + std::to_string(sequence) + " " + fault);
}

/// The scores that the prompt's queries gave become those by which tokens stay.
void start_evicting(BaselineKind kind, std::size_t lists, EvictionState& state) {
  auto& scores = kind == BaselineKind::kH2o ? state.prompt.sums : state.prompt.last;
  scores.resize(lists);
  for (std::vector<double>& list : scores) state.heads.emplace_back(std::move(list));
  state.length = state.prompt.tokens;
  state.kind = kind;
  state.watched = false;
  state.prompt = {};
}

}  // namespace

EvictionState* BaselineState::at_work(SequenceId sequence, std::int64_t tokens, bool sparse,
                                      std::size_t lists) {
  const auto found = sequences.find(sequence);
  EvictionState* const known = found == sequences.end() ? nullptr : &found->second;
  if (known != nullptr && known->kind && (known->kind != kind || !sparse)) {
    refuse(sequence, "has lost tokens to " + std::string(name_of(*known->kind)) +
                         ": nothing else can read it");
  }
  if (kind && evicts(*kind) && sparse) {
    if (known == nullptr) refuse(sequence, "was not watched while its prompt was read");
    if (*kind == BaselineKind::kH2o && known->prompt.tokens > 0 && !known->prompt.with_sums) {
      refuse(sequence, "was watched without sums, which h2o needs");
    }
    if (!known->kind) start_evicting(*kind, lists, *known);
    if (known->length != tokens) {
      refuse(sequence, "has " + std::to_string(tokens) + " tokens, of which " +
                           std::to_string(known->length) + " were seen");
    }
    return known;
  }
  if (kind || sparse || known == nullptr || !known->watched) return nullptr;
  if (known->prompt.tokens != tokens) refuse(sequence, "was not watched from its beginning");
  known->prompt.last.resize(lists);
  known->prompt.sums.resize(lists);
  return known;
}

}  // namespace quest::eval
