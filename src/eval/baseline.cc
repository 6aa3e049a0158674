// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "quest/eval/baseline.h"

#include <algorithm>

#include "eval/baseline_state.h"

namespace quest::eval {
namespace {

constexpr BaselineKind kAll[] = {
    BaselineKind::kStreamingLlm, BaselineKind::kH2o,    BaselineKind::kTova,  BaselineKind::kOracle,
    BaselineKind::kFixed,        BaselineKind::kRandom, BaselineKind::kGather};

}  // namespace

std::span<const BaselineKind> all_baselines() { return kAll; }

std::string_view name_of(BaselineKind kind) {
  switch (kind) {
    case BaselineKind::kStreamingLlm:
      return "streaming-llm";
    case BaselineKind::kH2o:
      return "h2o";
    case BaselineKind::kTova:
      return "tova";
    case BaselineKind::kOracle:
      return "oracle";
    case BaselineKind::kFixed:
      return "fixed";
    case BaselineKind::kRandom:
      return "random";
    case BaselineKind::kGather:
      return "gather";
    case BaselineKind::kInject:
      return "inject";
  }
  return "?";
}

std::optional<BaselineKind> parse_baseline(std::string_view text) {
  for (const BaselineKind kind : kAll) {
    if (text == name_of(kind)) return kind;
  }
  return std::nullopt;
}

InjectedReads& InjectedReads::operator+=(const InjectedReads& other) {
  pages += other.pages;
  bytes += other.bytes;
  return *this;
}

Baselines::Baselines() : state_(std::make_shared<BaselineState>()) {}
Baselines::~Baselines() = default;

AttentionFactory Baselines::attention() {
  return [state = state_](KvCache& cache, const SelectionPolicy& policy) {
    return make_baseline_backend(cache, policy, state);
  };
}

void Baselines::use(std::optional<BaselineKind> kind, std::uint64_t seed) {
  state_->kind = kind;
  state_->seed = seed;
}

void Baselines::inject(std::span<const std::int32_t> pages, LayerRange layers) {
  std::vector<std::int32_t>& mine = state_->injected_pages;
  mine.assign(pages.begin(), pages.end());
  std::sort(mine.begin(), mine.end());
  mine.erase(std::unique(mine.begin(), mine.end()), mine.end());
  state_->injected_layers = layers;
  state_->injected = {};
}

InjectedReads Baselines::injected() const { return state_->injected; }

void Baselines::watch(SequenceId sequence, bool sums) {
  EvictionState& state = state_->sequences[sequence];
  state.watched = true;
  state.prompt.with_sums = state.prompt.with_sums || sums;
}

void Baselines::fork(SequenceId parent, SequenceId child) {
  const auto found = state_->sequences.find(parent);
  if (found == state_->sequences.end()) return;
  EvictionState copy = found->second;
  copy.watched = false;
  state_->sequences[child] = std::move(copy);
}

void Baselines::release(SequenceId sequence) { state_->sequences.erase(sequence); }

std::size_t Baselines::sequences() const { return state_->sequences.size(); }

}  // namespace quest::eval
