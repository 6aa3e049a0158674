// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "quest/eval/calibration.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <utility>

#include "eval/branch.h"
#include "eval/next_token.h"
#include "quest/error.h"

namespace quest::eval {
namespace {

void check(const PerplexityPlan& plan, const std::vector<std::vector<Token>>& windows) {
  if (windows.empty()) throw InvalidArgument("calibration: no window of text");
  for (const std::vector<Token>& window : windows) validate(plan, window);
}

void check(const std::vector<std::int64_t>& levels) {
  if (levels.empty() || levels.front() < 1 ||
      std::adjacent_find(levels.begin(), levels.end(), std::greater_equal<>()) != levels.end()) {
    throw InvalidArgument("calibration: budgets must be positive and ascending");
  }
}

/// One window that was read; each arm forces its last tokens on a fork.
class ForcedWindow {
 public:
  ForcedWindow(Engine& engine, const PerplexityPlan& plan, std::span<const Token> window)
      : engine_(engine),
        rows_(std::min<std::int64_t>(plan.rows, engine.options().chunk)),
        vocabulary_(static_cast<std::size_t>(engine.model().info().vocabulary)),
        session_(engine),
        context_(window.first(static_cast<std::size_t>(plan.context))),
        forced_(window.subspan(context_.size(), static_cast<std::size_t>(plan.tokens))) {}

  bool read(const Progress& progress) {
    if (!session_.prefill(context_, progress)) return false;
    for_each_row(full_arm(), [this](std::size_t /*row*/, std::span<const float> logits) {
      full_.insert(full_.end(), logits.begin(), logits.end());
    });
    return true;
  }

  /// Mean KL of the arm against full attention.
  double kl(const Arm& arm) {
    double sum = 0;
    for_each_row(arm, [&](std::size_t row, std::span<const float> logits) {
      sum += kl_divergence(std::span(full_).subspan(row * vocabulary_, vocabulary_), logits);
    });
    return sum / static_cast<double>(forced_.size());
  }

 private:
  template <class Visit>
  void for_each_row(const Arm& arm, Visit visit) {
    Branch branch(engine_, session_, arm);
    for (std::size_t done = 0; done < forced_.size();) {
      const std::size_t count = std::min(static_cast<std::size_t>(rows_), forced_.size() - done);
      const std::span<const float> logits = branch.step(forced_.subspan(done, count));
      for (std::size_t i = 0; i < count; ++i) {
        visit(done + i, logits.subspan(i * vocabulary_, vocabulary_));
      }
      done += count;
    }
  }

  Engine& engine_;
  const std::int64_t rows_;
  const std::size_t vocabulary_;
  Session session_;
  const std::span<const Token> context_;
  const std::span<const Token> forced_;
  std::vector<float> full_;  ///< logits [forced tokens, vocabulary]
};

BudgetCurves empty_curves(const ModelInfo& info, std::vector<std::int64_t> levels) {
  BudgetCurves curves;
  curves.num_layers = info.num_layers;
  curves.num_kv_heads = info.num_kv_heads;
  curves.levels = std::move(levels);
  curves.harm.assign(
      static_cast<std::size_t>(info.num_layers) * info.num_kv_heads * curves.levels.size(), 0);
  return curves;
}

/// The slope of each head's harm over 1 / budget, by least squares: `gain` in
/// harm(b) = floor + gain / b. The floor is what rounding leaves.
std::vector<double> fitted_gains(const BudgetCurves& curves) {
  // At the lowest level next to nothing is selected, and curves leave the hyperbola.
  const std::size_t first = curves.levels.size() > 2 ? 1 : 0;
  std::vector<double> x;
  for (std::size_t i = first; i < curves.levels.size(); ++i) {
    x.push_back(1 / static_cast<double>(curves.levels[i]));
  }
  const double mean = std::accumulate(x.begin(), x.end(), 0.0) / static_cast<double>(x.size());
  for (double& value : x) value -= mean;
  const double squares = std::inner_product(x.begin(), x.end(), x.begin(), 0.0);
  std::vector<double> gains;
  const std::int64_t heads = std::int64_t{curves.num_layers} * curves.num_kv_heads;
  for (std::int64_t head = 0; head < heads; ++head) {
    const auto harm = curves.head(head).subspan(first);
    gains.push_back(std::inner_product(x.begin(), x.end(), harm.begin(), 0.0) / squares);
  }
  return gains;
}

/// Heads whose fitted gain is less than this part of the median, or negative, count as this.
constexpr double kLeastGain = 0.02;

void raise_small_gains(std::vector<double>& gains) {
  std::vector<double> sorted = gains;
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  // Where half of the heads gain nothing, the greatest stands for the median.
  const double typical = *middle > 0 ? *middle : *std::max_element(gains.begin(), gains.end());
  // Nobody gains: all are alike.
  const double least = typical > 0 ? kLeastGain * typical : 1;
  for (double& gain : gains) gain = std::max(gain, least);
}

}  // namespace

std::optional<std::vector<double>> measure_policies(Engine& engine, const PerplexityPlan& plan,
                                                    const std::vector<std::vector<Token>>& windows,
                                                    std::span<const SelectionPolicy> policies,
                                                    const Progress& progress) {
  check(plan, windows);
  const PolicyGuard guard(engine);
  std::vector<double> kl(policies.size(), 0);
  const auto total = static_cast<std::int64_t>(windows.size() * policies.size());
  std::int64_t done = 0;
  const auto go_on = [&] { return !progress || progress(done, total); };
  for (const std::vector<Token>& tokens : windows) {
    ForcedWindow window(engine, plan, tokens);
    if (!window.read([&](std::int64_t, std::int64_t) { return go_on(); })) return std::nullopt;
    for (std::size_t i = 0; i < policies.size(); ++i) {
      Arm arm;
      arm.policy = policies[i];
      kl[i] += window.kl(arm) / static_cast<double>(windows.size());
      ++done;
      if (!go_on()) return std::nullopt;
    }
  }
  return kl;
}

std::optional<BudgetCurves> measure_budget_curves(Engine& engine, const PerplexityPlan& plan,
                                                  const std::vector<std::vector<Token>>& windows,
                                                  const SelectionPolicy& policy,
                                                  std::vector<std::int64_t> levels,
                                                  double negligible, const Progress& progress) {
  check(plan, windows);
  check(levels);
  const ModelInfo& info = engine.model().info();
  const PolicyGuard guard(engine);
  BudgetCurves curves = empty_curves(info, std::move(levels));
  const auto heads = static_cast<std::size_t>(info.num_layers) * info.num_kv_heads;
  const std::size_t count = curves.levels.size();
  Arm arm;
  arm.policy = policy;
  arm.policy.dense = false;
  arm.policy.crossover = 1;
  const auto total = static_cast<std::int64_t>(windows.size() * heads * count);
  std::int64_t done = 0;
  const auto go_on = [&] { return !progress || progress(done, total); };
  for (const std::vector<Token>& tokens : windows) {
    ForcedWindow window(engine, plan, tokens);
    if (!window.read([&](std::int64_t, std::int64_t) { return go_on(); })) return std::nullopt;
    for (std::size_t head = 0; head < heads; ++head) {
      double kl = 0;
      bool settled = false;
      for (std::size_t level = 0; level < count; ++level) {
        if (!settled) {
          arm.policy.budget_table.assign(heads, SelectionPolicy::kDenseBudget);
          arm.policy.budget_table[head] = curves.levels[level];
          kl = window.kl(arm);
          settled = kl <= negligible;
        }
        curves.harm[head * count + level] += kl / static_cast<double>(windows.size());
        ++done;
        if (!go_on()) return std::nullopt;
      }
    }
  }
  return curves;
}

std::optional<BudgetCurves> measure_mass_curves(Fidelity& fidelity, const PerplexityPlan& plan,
                                                const std::vector<std::vector<Token>>& windows,
                                                const SelectionPolicy& policy,
                                                std::vector<std::int64_t> levels,
                                                const Progress& progress) {
  check(plan, windows);
  check(levels);
  const ModelInfo& info = fidelity.engine().model().info();
  BudgetCurves curves = empty_curves(info, std::move(levels));
  const std::size_t count = curves.levels.size();
  const std::int32_t group = info.num_q_heads / info.num_kv_heads;
  Arm arm;
  arm.policy = policy;
  arm.policy.dense = false;
  arm.policy.dense_layers = 0;
  arm.policy.crossover = 1;
  arm.policy.calibrated.clear();
  arm.policy.budget_table.clear();
  FidelityPlan watched;
  watched.text = plan;
  const auto total = static_cast<std::int64_t>(windows.size() * count);
  std::int64_t done = 0;
  const auto go_on = [&] { return !progress || progress(done, total); };
  for (std::size_t level = 0; level < count; ++level) {
    arm.policy.budget = curves.levels[level];
    std::optional<FidelityRun> sum;
    for (const std::vector<Token>& window : windows) {
      const auto result =
          fidelity.run(watched, window, arm, [&](std::int64_t, std::int64_t) { return go_on(); });
      if (!result) return std::nullopt;
      if (sum) {
        *sum += result->teacher_forced;
      } else {
        sum = result->teacher_forced;
      }
      ++done;
      if (!go_on()) return std::nullopt;
    }
    for (std::size_t head = 0; head < sum->heads.size(); ++head) {
      const HeadFidelity& of_head = sum->heads[head];
      const double missed = 1 - of_head.mass / static_cast<double>(of_head.tokens);
      double& most = curves.harm[head / static_cast<std::size_t>(group) * count + level];
      most = std::max(most, missed);
    }
  }
  return curves;
}

std::vector<std::int64_t> budgets_within(const BudgetCurves& curves, double most) {
  std::vector<std::int64_t> budgets;
  const std::int64_t heads = std::int64_t{curves.num_layers} * curves.num_kv_heads;
  for (std::int64_t head = 0; head < heads; ++head) {
    const std::span<const double> harm = curves.head(head);
    const auto enough =
        std::find_if(harm.begin(), harm.end() - 1, [most](double value) { return value <= most; });
    budgets.push_back(curves.levels[static_cast<std::size_t>(enough - harm.begin())]);
  }
  return budgets;
}

std::vector<std::int64_t> allocate_budgets(const BudgetCurves& curves, double tokens,
                                           std::int32_t page_size) {
  std::vector<double> shares = fitted_gains(curves);
  raise_small_gains(shares);
  // Σ gain / b is least, for a given Σ b, where all gain / b² are equal.
  for (double& share : shares) share = std::sqrt(share);
  const auto least = static_cast<double>(curves.levels.front());
  const auto most = static_cast<double>(curves.levels.back());
  const auto pages = [&](double factor, double share) {
    return std::floor(std::clamp(factor * share, least, most) / page_size);
  };
  const auto spent = [&](double factor) {
    double sum = 0;
    for (const double share : shares) sum += pages(factor, share) * page_size;
    return sum;
  };
  // The largest factor that the tokens pay for. At `above` every head has the most.
  const double wanted = tokens * static_cast<double>(shares.size());
  double below = 0;
  double above = 2 * most / *std::min_element(shares.begin(), shares.end());
  if (spent(above) <= wanted) below = above;
  constexpr int kHalvings = 100;
  for (int i = 0; i < kHalvings; ++i) {
    const double middle = (below + above) / 2;
    (spent(middle) <= wanted ? below : above) = middle;
  }
  std::vector<std::int64_t> budgets;
  budgets.reserve(shares.size());
  for (const double share : shares) {
    budgets.push_back(static_cast<std::int64_t>(pages(below, share)) * page_size);
  }
  return budgets;
}

std::optional<std::size_t> least_within(std::span<const double> increases, double target) {
  std::size_t first = increases.size();
  while (first > 0 && increases[first - 1] <= target) --first;
  if (first == increases.size()) return std::nullopt;
  return first;
}

}  // namespace quest::eval
