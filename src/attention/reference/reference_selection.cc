// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "attention/reference/reference_selection.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

namespace quest::reference {

namespace {

using Pages = std::set<std::int32_t>;
using Scores = std::vector<double>;

bool has_nan(const Scores& scores) {
  return std::any_of(scores.begin(), scores.end(), [](double x) { return std::isnan(x); });
}

/// Adds the `count` best pages that are not in `pages` yet.
void add_best(const Scores& scores, std::int64_t count, Pages& pages) {
  std::vector<std::int32_t> order;
  for (std::int32_t p = 0; p < static_cast<std::int32_t>(scores.size()); ++p) {
    if (!pages.contains(p)) order.push_back(p);
  }
  std::sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
    if (scores[a] != scores[b]) return scores[a] > scores[b];
    return a < b;
  });
  order.resize(static_cast<std::size_t>(count));
  pages.insert(order.begin(), order.end());
}

Scores maximum_over_heads(const std::vector<Scores>& scores) {
  Scores combined = scores[0];
  for (const Scores& head : scores) {
    for (std::size_t p = 0; p < head.size(); ++p) combined[p] = std::max(combined[p], head[p]);
  }
  return combined;
}

Scores mean_over_heads(const std::vector<Scores>& scores) {
  Scores combined(scores[0].size(), 0.0);
  for (const Scores& head : scores) {
    for (std::size_t p = 0; p < head.size(); ++p) combined[p] += head[p];
  }
  for (double& x : combined) x /= static_cast<double>(scores.size());
  return combined;
}

/// log Σ exp(x), -inf for no terms or none above -inf; +inf never reaches it.
double log_sum_exp(const Scores& x) {
  const double infinity = std::numeric_limits<double>::infinity();
  const double top = x.empty() ? -infinity : *std::max_element(x.begin(), x.end());
  if (top == -infinity) return top;
  double sum = 0;
  for (double value : x) sum += std::exp(value - top);
  return top + std::log(sum);
}

/// Log-probabilities of the pages outside `forced`; forced pages get -inf.
Scores log_softmax(const Scores& scores, const Pages& forced, double scale) {
  const double infinity = std::numeric_limits<double>::infinity();
  Scores logits;
  for (std::int32_t p = 0; p < static_cast<std::int32_t>(scores.size()); ++p) {
    if (!forced.contains(p)) logits.push_back(scale * scores[p]);
  }
  const double top = logits.empty() ? 0 : *std::max_element(logits.begin(), logits.end());
  // An infinite greatest score: those that hold it share the mass equally, the others get none.
  const bool shared = std::isinf(top);
  for (double& x : logits) {
    if (shared) x = x == top ? 0 : -infinity;
  }
  const double normaliser = log_sum_exp(logits);
  Scores result(scores.size(), -infinity);
  std::size_t next = 0;
  for (std::int32_t p = 0; p < static_cast<std::int32_t>(scores.size()); ++p) {
    if (!forced.contains(p)) result[p] = logits[next++] - normaliser;
  }
  return result;
}

Scores summed_softmax(const std::vector<Scores>& scores, const Pages& forced, double scale) {
  std::vector<Scores> logs;
  logs.reserve(scores.size());
  for (const Scores& head : scores) logs.push_back(log_softmax(head, forced, scale));
  Scores combined;
  for (std::size_t p = 0; p < scores[0].size(); ++p) {
    Scores terms;
    for (const Scores& head : logs) terms.push_back(head[p]);
    combined.push_back(log_sum_exp(terms));
  }
  return combined;
}

}  // namespace

double score_page(const float* q, const float* minimum, const float* maximum, std::int32_t head_dim,
                  double beta) {
  double score = 0;
  for (std::int32_t j = 0; j < head_dim; ++j) {
    const double centre = (double{minimum[j]} + maximum[j]) / 2;
    const double half_width = (double{maximum[j]} - minimum[j]) / 2;
    score += q[j] * centre + beta * std::abs(q[j]) * half_width;
  }
  return score;
}

std::vector<std::int32_t> forced_pages(const SelectionPolicy& policy, std::int64_t kv_len,
                                       std::int32_t page_size, std::int64_t page_budget) {
  std::vector<std::int32_t> forced;
  const auto force = [&](std::int64_t page) {
    const auto p = static_cast<std::int32_t>(page);
    if (std::find(forced.begin(), forced.end(), p) == forced.end()) forced.push_back(p);
  };
  if (kv_len > 0) force((kv_len - 1) / page_size);
  for (std::int64_t t = kv_len - 1; t >= 0 && t >= kv_len - policy.window; --t) {
    force(t / page_size);
  }
  for (std::int64_t t = 0; t < kv_len && t < policy.sinks; ++t) force(t / page_size);
  if (static_cast<std::int64_t>(forced.size()) > page_budget) {
    forced.resize(static_cast<std::size_t>(page_budget));
  }
  return forced;
}

std::vector<std::int32_t> select_pages(GroupMode mode, const std::vector<Scores>& scores,
                                       const std::vector<std::int32_t>& forced_list,
                                       std::int64_t page_budget, double scale, bool& nan) {
  const Pages forced(forced_list.begin(), forced_list.end());
  const std::int64_t free = page_budget - static_cast<std::int64_t>(forced.size());
  const auto group = static_cast<std::int64_t>(scores.size());
  const Scores mean = mean_over_heads(scores);
  nan = std::any_of(scores.begin(), scores.end(), has_nan);
  if (mode == GroupMode::kGroupMean || mode == GroupMode::kQuota) nan = nan || has_nan(mean);
  Pages pages = forced;
  if (nan) return {pages.begin(), pages.end()};
  switch (mode) {
    case GroupMode::kPerHead:
      for (const Scores& head : scores) {
        Pages own = forced;
        add_best(head, free, own);
        pages.insert(own.begin(), own.end());
      }
      break;
    case GroupMode::kGroupMax:
      add_best(maximum_over_heads(scores), free, pages);
      break;
    case GroupMode::kGroupMean:
      add_best(mean, free, pages);
      break;
    case GroupMode::kGroupSoftmax:
      add_best(summed_softmax(scores, forced, scale), free, pages);
      break;
    case GroupMode::kQuota: {
      const std::int64_t quota = free / 2 / group;
      for (const Scores& head : scores) add_best(head, quota, pages);
      add_best(mean, free - quota * group, pages);
      break;
    }
  }
  return {pages.begin(), pages.end()};
}

}  // namespace quest::reference
