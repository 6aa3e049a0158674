// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "eval/branch.h"

namespace quest::eval {

PromptWatch::PromptWatch(std::span<const Arm> arms, const Session& prompt)
    : sequence_(prompt.sequence()) {
  for (const Arm& arm : arms) {
    if (!arm.baseline || !evicts(arm.baseline->kind)) continue;
    arm.baseline->baselines->watch(sequence_, arm.baseline->kind == BaselineKind::kH2o);
    watching_.insert(arm.baseline->baselines);
  }
}

PromptWatch::~PromptWatch() {
  for (const auto& baselines : watching_) baselines->release(sequence_);
}

ForkState::ForkState(const Arm& arm, SequenceId parent, SequenceId child) : child_(child) {
  if (!arm.baseline || !evicts(arm.baseline->kind)) return;
  baselines_ = arm.baseline->baselines;
  baselines_->fork(parent, child);
}

ForkState::~ForkState() {
  if (baselines_) baselines_->release(child_);
}

ArmInUse::ArmInUse(const Arm& arm) : arm_(arm) {
  if (arm.baseline) arm.baseline->baselines->use(arm.baseline->kind, arm.baseline->seed);
}

ArmInUse::~ArmInUse() {
  if (arm_.baseline) arm_.baseline->baselines->use(std::nullopt);
}

Branch::Branch(Engine& engine, const Session& parent, const Arm& arm)
    : engine_(engine),
      arm_(arm),
      sequence_(engine.cache().fork(parent.sequence())),
      state_(arm, parent.sequence(), sequence_) {}

Branch::~Branch() { engine_.cache().release(sequence_); }

std::span<const float> Branch::step(std::span<const Token> tokens) {
  const ArmInUse use(arm_);
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
