// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "quest/eval/fidelity.h"

#include <algorithm>
#include <string>
#include <utility>

#include "eval/attention_probe.h"
#include "eval/branch.h"
#include "eval/next_token.h"
#include "quest/error.h"

namespace quest::eval {
namespace {

template <class T>
void append(std::vector<T>& values, const std::vector<T>& more) {
  values.insert(values.end(), more.begin(), more.end());
}

FidelityRun empty_run(const ModelInfo& info) {
  FidelityRun run;
  run.num_layers = info.num_layers;
  run.num_q_heads = info.num_q_heads;
  run.heads.resize(static_cast<std::size_t>(info.num_layers) * info.num_q_heads);
  run.jaccard.resize(static_cast<std::size_t>(info.num_layers));
  run.jaccard_tokens.resize(static_cast<std::size_t>(info.num_layers));
  return run;
}

}  // namespace

HeadFidelity& HeadFidelity::operator+=(const HeadFidelity& other) {
  tokens += other.tokens;
  page_share += other.page_share;
  page_recall += other.page_recall;
  mass += other.mass;
  cosine += other.cosine;
  relative_l2 += other.relative_l2;
  regret += other.regret;
  slack += other.slack;
  slack_pages += other.slack_pages;
  for (std::size_t i = 0; i < kSlackBins; ++i) slack_bins[i] += other.slack_bins[i];
  return *this;
}

double HeadFidelity::slack_quantile(double share) const {
  const double wanted = share * static_cast<double>(slack_pages);
  std::int64_t below = 0;
  std::size_t bin = 0;
  for (; bin + 1 < kSlackBins; ++bin) {
    below += slack_bins[bin];
    if (static_cast<double>(below) >= wanted) break;
  }
  return static_cast<double>(bin + 1) * kSlackStep;
}

FidelityRun& FidelityRun::operator+=(const FidelityRun& other) {
  for (std::size_t i = 0; i < heads.size(); ++i) heads[i] += other.heads[i];
  for (std::size_t i = 0; i < jaccard.size(); ++i) {
    jaccard[i] += other.jaccard[i];
    jaccard_tokens[i] += other.jaccard_tokens[i];
  }
  append(kl, other.kl);
  append(agrees, other.agrees);
  append(same_tokens, other.same_tokens);
  cost += other.cost;
  return *this;
}

Fidelity::Fidelity(std::shared_ptr<const Model> model, EngineOptions options)
    : probe_(std::make_unique<AttentionProbe>()) {
  options.attention = [probe = probe_.get()](KvCache& cache, const SelectionPolicy& policy) {
    return observe_backend(make_cpu_backend(cache, policy), *probe);
  };
  engine_ = std::make_unique<Engine>(std::move(model), options);
}

Fidelity::~Fidelity() = default;

Engine& Fidelity::engine() { return *engine_; }

std::int64_t Fidelity::cache_tokens(const FidelityPlan& plan, std::int32_t page_size) {
  return forked_cache_tokens(plan.text.context, plan.text.tokens, 2, page_size);
}

/// Feeds the arm and, beside it, full attention: the given tokens, or (`free`) as many that the arm
/// writes, of which only the first is taken from `tokens`. Ends early if `go_on` turns false.
FidelityRun Fidelity::force(const Session& context, const Arm& arm, std::span<const Token> tokens,
                            bool free, std::int32_t top, const std::function<bool()>& go_on) {
  FidelityRun run = empty_run(engine_->model().info());
  const Arm reference = full_arm();
  Branch full(*engine_, context, reference);
  Branch sparse(*engine_, context, arm);
  Token token = tokens.front();
  std::int64_t same = 0;
  bool differs = false;
  for (std::size_t i = 0; i < tokens.size() && go_on(); ++i) {
    if (!free) token = tokens[i];
    const auto logits = full.step({&token, 1});
    const std::vector<float> full_logits(logits.begin(), logits.end());
    const std::span<const float> sparse_logits = [&] {
      const AttentionProbe::Watch watch(*probe_, engine_->cache(), arm.policy.beta, top, run);
      return sparse.step({&token, 1});
    }();
    const Token next = likeliest(sparse_logits);
    const bool agrees = likeliest(full_logits) == next;
    run.kl.push_back(kl_divergence(full_logits, sparse_logits));
    run.agrees.push_back(agrees ? 1 : 0);
    differs = differs || !agrees;
    if (!differs) ++same;
    token = next;
  }
  if (free) run.same_tokens.push_back(same);
  run.cost = sparse.cost();
  return run;
}

std::optional<FidelityWindow> Fidelity::run(const FidelityPlan& plan, std::span<const Token> window,
                                            const Arm& arm, const Progress& progress) {
  validate(plan.text, window);
  if (plan.top < 1) {
    throw InvalidArgument("fidelity: top " + std::to_string(plan.top) + " must be at least 1");
  }
  const PolicyGuard guard(*engine_);
  const auto context = static_cast<std::size_t>(plan.text.context);
  const std::int64_t total = plan.text.context + 2 * plan.text.tokens;
  std::int64_t reported = 0;
  bool stopped = false;
  const auto go_on = [&] {
    stopped = stopped || (progress && !progress(reported, total));
    return !stopped;
  };
  Session session(*engine_);
  session.prefill(window.first(context), [&](std::int64_t done, std::int64_t) {
    reported = done;
    return go_on();
  });
  const auto advance = [&] {
    const bool more = go_on();
    ++reported;
    return more;
  };
  FidelityWindow result;
  const auto tokens = static_cast<std::size_t>(plan.text.tokens);
  if (!stopped) {
    result.teacher_forced =
        force(session, arm, window.subspan(context, tokens), false, plan.top, advance);
  }
  if (!stopped) {
    std::vector<Token> own(tokens, likeliest(session.logits()));
    result.free_running = force(session, arm, own, true, plan.top, advance);
  }
  if (stopped) return std::nullopt;
  return result;
}

}  // namespace quest::eval
