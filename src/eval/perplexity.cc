// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "quest/eval/perplexity.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>

#include "eval/branch.h"
#include "eval/next_token.h"
#include "quest/error.h"

namespace quest::eval {
namespace {

void require_positive(const char* field, std::int64_t value) {
  if (value >= 1) return;
  throw InvalidArgument("perplexity: " + std::string(field) + " " + std::to_string(value) +
                        " must be at least 1");
}

/// Rows of logits and the text's next tokens turned into figures.
class Scorer {
 public:
  Scorer(std::size_t vocabulary, std::span<const Token> next)
      : vocabulary_(vocabulary), next_(next) {}

  void score_full(std::span<const float> logits, std::vector<double>& nll) {
    full_.assign(logits.begin(), logits.end());
    for (std::size_t i = 0; i < next_.size(); ++i) {
      nll.push_back(negative_log_likelihood(row(full_, i), next_[i]));
    }
  }

  void score_arm(std::span<const float> logits, ArmTokens& tokens) const {
    for (std::size_t i = 0; i < next_.size(); ++i) {
      const auto mine = row(logits, i);
      const auto full = row(full_, i);
      tokens.nll.push_back(negative_log_likelihood(mine, next_[i]));
      tokens.kl.push_back(kl_divergence(full, mine));
      tokens.agrees.push_back(likeliest(full) == likeliest(mine) ? 1 : 0);
    }
  }

 private:
  std::span<const float> row(std::span<const float> logits, std::size_t i) const {
    return logits.subspan(i * vocabulary_, vocabulary_);
  }

  const std::size_t vocabulary_;
  const std::span<const Token> next_;
  std::vector<float> full_;
};

/// exp of the mean of values [first, last) of all rows.
double pooled_perplexity(const std::vector<std::span<const double>>& rows, std::int64_t first,
                         std::int64_t last) {
  double sum = 0;
  for (const std::span<const double> row : rows) {
    for (std::int64_t i = first; i < last; ++i) sum += row[static_cast<std::size_t>(i)];
  }
  return std::exp(sum /
                  static_cast<double>((last - first) * static_cast<std::int64_t>(rows.size())));
}

}  // namespace

void validate(const PerplexityPlan& plan) {
  require_positive("context", plan.context);
  require_positive("tokens", plan.tokens);
  require_positive("rows", plan.rows);
}

void validate(const PerplexityPlan& plan, std::span<const Token> window) {
  validate(plan);
  if (static_cast<std::int64_t>(window.size()) == plan.window_tokens()) return;
  throw InvalidArgument("a window of " + std::to_string(window.size()) + " tokens, not " +
                        std::to_string(plan.window_tokens()));
}

std::vector<std::int64_t> window_starts(std::int64_t text_tokens, std::int64_t window_tokens,
                                        std::int64_t predicted_tokens, std::int64_t windows) {
  const std::int64_t needed = window_tokens + (windows - 1) * predicted_tokens;
  if (windows < 1 || text_tokens < needed) {
    throw InvalidArgument("the text has " + std::to_string(text_tokens) + " tokens, " +
                          std::to_string(windows) + " windows of " + std::to_string(window_tokens) +
                          " need " + std::to_string(needed) +
                          "; give a longer text, a shorter context or fewer windows");
  }
  std::vector<std::int64_t> starts;
  const std::int64_t room = text_tokens - window_tokens;
  for (std::int64_t i = 0; i < windows; ++i) {
    starts.push_back(windows == 1 ? 0 : room * i / (windows - 1));
  }
  return starts;
}

std::int64_t perplexity_cache_tokens(const PerplexityPlan& plan, std::int64_t arms,
                                     std::int32_t page_size) {
  return forked_cache_tokens(plan.context, plan.tokens, arms + 1, page_size);
}

std::optional<PerplexityWindow> run_window(Engine& engine, const PerplexityPlan& plan,
                                           std::span<const Token> window, std::span<const Arm> arms,
                                           const Progress& progress) {
  validate(plan, window);
  const PolicyGuard guard(engine);
  const std::int64_t total = plan.context + plan.tokens;
  const auto context = static_cast<std::size_t>(plan.context);
  Session session(engine);
  const PromptWatch watch(arms, session);
  const bool read = session.prefill(window.first(context), [&](std::int64_t done, std::int64_t) {
    return !progress || progress(done, total);
  });
  if (!read) return std::nullopt;

  const Arm reference = full_arm();
  Branch full(engine, session, reference);
  std::vector<std::unique_ptr<Branch>> branches;
  for (const Arm& arm : arms) branches.push_back(std::make_unique<Branch>(engine, session, arm));
  PerplexityWindow result;
  result.arms.resize(arms.size());
  const std::int64_t rows = std::min<std::int64_t>(plan.rows, engine.options().chunk);
  for (std::int64_t done = 0; done < plan.tokens; done += rows) {
    const auto count = static_cast<std::size_t>(std::min(rows, plan.tokens - done));
    const auto tokens = window.subspan(context + static_cast<std::size_t>(done), count);
    const auto next = window.subspan(context + static_cast<std::size_t>(done) + 1, count);
    Scorer scorer(static_cast<std::size_t>(engine.model().info().vocabulary), next);
    scorer.score_full(full.step(tokens), result.full_nll);
    for (std::size_t a = 0; a < branches.size(); ++a) {
      scorer.score_arm(branches[a]->step(tokens), result.arms[a]);
    }
    const std::int64_t finished = plan.context + done + static_cast<std::int64_t>(count);
    if (progress && !progress(finished, total)) return std::nullopt;
  }
  result.full = full.cost();
  for (std::size_t a = 0; a < branches.size(); ++a) result.arms[a].cost = branches[a]->cost();
  return result;
}

PerplexitySummary summarise(std::span<const PerplexityWindow> windows, std::size_t arm,
                            const PerplexityPlan& plan, std::int64_t buckets) {
  PerplexitySummary summary;
  if (windows.empty()) return summary;
  std::vector<std::span<const double>> full;
  std::vector<std::span<const double>> mine;
  std::vector<std::vector<double>> differences;
  std::vector<double> kl;
  double agreeing = 0;
  for (const PerplexityWindow& window : windows) {
    const ArmTokens& tokens = window.arms[arm];
    full.emplace_back(window.full_nll);
    mine.emplace_back(tokens.nll);
    std::vector<double>& difference = differences.emplace_back();
    for (std::size_t i = 0; i < tokens.nll.size(); ++i) {
      difference.push_back(tokens.nll[i] - window.full_nll[i]);
      agreeing += tokens.agrees[i];
    }
    kl.insert(kl.end(), tokens.kl.begin(), tokens.kl.end());
    summary.cost += tokens.cost;
    summary.full += window.full;
  }
  summary.tokens = static_cast<std::int64_t>(kl.size());
  summary.perplexity_full = pooled_perplexity(full, 0, plan.tokens);
  summary.perplexity = pooled_perplexity(mine, 0, plan.tokens);
  summary.relative_increase = summary.perplexity / summary.perplexity_full - 1;
  summary.interval = mean_interval(differences, kIndependentTokens);
  summary.kl = mean(kl);
  summary.agreement = agreeing / static_cast<double>(summary.tokens);
  const std::int64_t pieces = std::clamp<std::int64_t>(buckets, 1, plan.tokens);
  for (std::int64_t i = 0; i < pieces; ++i) {
    const std::int64_t first = plan.tokens * i / pieces;
    const std::int64_t last = plan.tokens * (i + 1) / pieces;
    summary.positions.push_back({plan.context + first, plan.context + last,
                                 pooled_perplexity(full, first, last),
                                 pooled_perplexity(mine, first, last)});
  }
  return summary;
}

}  // namespace quest::eval
