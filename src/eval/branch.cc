// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "eval/branch.h"

namespace quest::eval {

Branch::Branch(Engine& engine, const Session& parent, const Arm& arm)
    : engine_(engine), arm_(arm), sequence_(engine.cache().fork(parent.sequence())) {}

Branch::~Branch() { engine_.cache().release(sequence_); }

std::span<const float> Branch::step(std::span<const Token> tokens) {
  engine_.set_policy(arm_.policy);
  engine_.reset_counters();
  StepRequest request;
  request.sequence = sequence_;
  request.tokens = tokens;
  request.sparse = !arm_.policy.dense;
  request.all_logits = true;
  const std::span<const float> logits = engine_.step({&request, 1});
  cost_ +=
      cost_of(engine_.counters(), arm_.policy, engine_.model().info(), engine_.options().page_size);
  return logits;
}

}  // namespace quest::eval
