// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "quest/eval/arm.h"

namespace quest::eval {

/// The engine's policy comes back at the end of scope.
class PolicyGuard {
 public:
  explicit PolicyGuard(Engine& engine) : engine_(engine), policy_(engine.options().policy) {}
  ~PolicyGuard() { engine_.set_policy(policy_); }
  PolicyGuard(const PolicyGuard&) = delete;
  PolicyGuard& operator=(const PolicyGuard&) = delete;

 private:
  Engine& engine_;
  const SelectionPolicy policy_;
};

/// A fork of a session that one arm grows token by token while the others grow theirs.
class Branch {
 public:
  Branch(Engine& engine, const Session& parent, const Arm& arm);
  ~Branch();
  Branch(const Branch&) = delete;
  Branch& operator=(const Branch&) = delete;

  /// Reads the tokens in one step under the arm's policy. Returns logits [tokens, vocabulary],
  /// valid until the engine's next step.
  std::span<const float> step(std::span<const Token> tokens);

  const Arm& arm() const { return arm_; }
  const ArmCost& cost() const { return cost_; }

 private:
  Engine& engine_;
  const Arm& arm_;
  const SequenceId sequence_;
  ArmCost cost_;
};

}  // namespace quest::eval
