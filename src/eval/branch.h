// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <set>
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

/// Lets the evicting baselines among the arms see the prompt that a sequence is about to read.
class PromptWatch {
 public:
  PromptWatch(std::span<const Arm> arms, const Session& prompt);
  ~PromptWatch();
  PromptWatch(const PromptWatch&) = delete;
  PromptWatch& operator=(const PromptWatch&) = delete;

 private:
  const SequenceId sequence_;
  std::set<std::shared_ptr<Baselines>> watching_;
};

/// A baseline's state of a fork, where the arm has any, for as long as the fork lives.
class ForkState {
 public:
  ForkState(const Arm& arm, SequenceId parent, SequenceId child);
  ~ForkState();
  ForkState(const ForkState&) = delete;
  ForkState& operator=(const ForkState&) = delete;

 private:
  std::shared_ptr<Baselines> baselines_;
  const SequenceId child_;
};

/// While it lives the engine reads as the arm does.
class ArmInUse {
 public:
  explicit ArmInUse(const Arm& arm);
  ~ArmInUse();
  ArmInUse(const ArmInUse&) = delete;
  ArmInUse& operator=(const ArmInUse&) = delete;

 private:
  const Arm& arm_;
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
  const ForkState state_;
  ArmCost cost_;
};

}  // namespace quest::eval
