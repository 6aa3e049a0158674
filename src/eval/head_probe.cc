// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "eval/head_probe.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "cache/page_codec.h"
#include "eval/token_attention.h"

namespace quest::eval {
namespace {

/// Full attention of one query.
struct FullAttention {
  std::vector<float> logits;      ///< [tokens], scaled
  std::vector<float> page_max;    ///< [pages], largest logit
  std::vector<double> page_mass;  ///< [pages], sums to 1
  std::vector<double> out;        ///< [head_dim]
};

void compute_logits(const HeadPages& pages, const ProbedQuery& query, FullAttention& full) {
  const std::int32_t size = pages.page_size();
  full.logits.resize(static_cast<std::size_t>(pages.num_pages()) * size);
  full.page_max.clear();
  for (std::int32_t p = 0; p < pages.num_pages(); ++p) {
    float* const logits = full.logits.data() + std::int64_t{p} * size;
    page_logits(pages, query.q, query.scale, p, logits);
    const auto valid = std::min<std::int64_t>(size, pages.tokens() - std::int64_t{p} * size);
    full.page_max.push_back(*std::max_element(logits, logits + valid));
  }
  full.logits.resize(static_cast<std::size_t>(pages.tokens()));  // empty slots hold anything
}

void compute_output(const HeadPages& pages, FullAttention& full) {
  const std::int32_t size = pages.page_size();
  const auto d = static_cast<std::size_t>(pages.head_dim());
  const double top = *std::max_element(full.page_max.begin(), full.page_max.end());
  full.page_mass.assign(full.page_max.size(), 0);
  full.out.assign(d, 0);
  for (std::int64_t t = 0; t < pages.tokens(); ++t) {
    const double weight = std::exp(double{full.logits[static_cast<std::size_t>(t)]} - top);
    const auto page = static_cast<std::int32_t>(t / size);
    full.page_mass[static_cast<std::size_t>(page)] += weight;
    const float* const value = pages.values(page) + t % size * pages.head_dim();
    for (std::size_t j = 0; j < d; ++j) full.out[j] += weight * double{value[j]};
  }
  const double sum = std::accumulate(full.page_mass.begin(), full.page_mass.end(), 0.0);
  for (double& mass : full.page_mass) mass /= sum;
  for (double& value : full.out) value /= sum;
}

/// Pages of the `top` tokens with the largest logits, earlier tokens first among equals; ascending.
std::vector<std::int32_t> top_pages(const HeadPages& pages, const FullAttention& full,
                                    std::int32_t top) {
  std::vector<std::int64_t> order(full.logits.size());
  std::iota(order.begin(), order.end(), std::int64_t{0});
  const auto count = std::min<std::size_t>(static_cast<std::size_t>(top), order.size());
  const auto above = [&](std::int64_t a, std::int64_t b) {
    const float la = full.logits[static_cast<std::size_t>(a)];
    const float lb = full.logits[static_cast<std::size_t>(b)];
    return la != lb ? la > lb : a < b;
  };
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(count), order.end(),
                    above);
  std::vector<std::int32_t> result;
  for (std::size_t i = 0; i < count; ++i) {
    result.push_back(static_cast<std::int32_t>(order[i] / pages.page_size()));
  }
  std::sort(result.begin(), result.end());
  result.erase(std::unique(result.begin(), result.end()), result.end());
  return result;
}

/// q · centre + beta |q| · half-width of a page's box, scaled: its bound for beta 1.
double page_score(const HeadPages& pages, const ProbedQuery& query, std::int32_t page,
                  double beta) {
  const float* const low = pages.bounds(page);
  const float* const high = low + pages.head_dim();
  double score = 0;
  for (std::int32_t j = 0; j < pages.head_dim(); ++j) {
    const double q = query.q[j];
    const double centre = (double{low[j]} + double{high[j]}) / 2;
    score += q * centre + beta * std::abs(q) * (double{high[j]} - centre);
  }
  return score * double{query.scale};
}

/// The token's own page is always read: its score says nothing.
void add_scores(const HeadPages& pages, const ProbedQuery& query, const FullAttention& full,
                HeadFidelity& sums) {
  const std::int32_t count = pages.num_pages() - 1;
  if (count == 0) return;
  std::vector<double> scores;
  for (std::int32_t p = 0; p < count; ++p) {
    scores.push_back(page_score(pages, query, p, double{query.beta}));
    const double bound = query.beta == 1.0F ? scores.back() : page_score(pages, query, p, 1);
    const double slack = std::max(0.0, bound - double{full.page_max[static_cast<std::size_t>(p)]});
    sums.slack += slack;
    const auto bin = static_cast<std::size_t>(slack / kSlackStep);
    ++sums.slack_bins[std::min(bin, kSlackBins - 1)];
  }
  sums.slack_pages += count;
  const auto best = std::max_element(full.page_max.begin(), full.page_max.begin() + count);
  const double best_score = scores[static_cast<std::size_t>(best - full.page_max.begin())];
  sums.regret += static_cast<double>(std::count_if(
      scores.begin(), scores.end(), [&](double score) { return score > best_score; }));
}

void add_output_error(const ProbedQuery& query, const FullAttention& full, HeadFidelity& sums) {
  double dot = 0;
  double mine = 0;
  double theirs = 0;
  double difference = 0;
  for (std::size_t j = 0; j < full.out.size(); ++j) {
    const double a = query.out[j];
    const double b = full.out[j];
    dot += a * b;
    mine += a * a;
    theirs += b * b;
    difference += (a - b) * (a - b);
  }
  const bool both = mine > 0 && theirs > 0;
  sums.cosine += both ? dot / std::sqrt(mine * theirs) : (mine == theirs ? 1 : 0);
  sums.relative_l2 += theirs > 0 ? std::sqrt(difference / theirs) : (difference > 0 ? 1 : 0);
}

}  // namespace

void HeadPages::load(const PagedKv& kv, const std::int32_t* table, std::int32_t kv_head,
                     std::int64_t tokens) {
  shape_ = kv.shape;
  tokens_ = tokens;
  const std::int32_t count = num_pages();
  keys_.resize(static_cast<std::size_t>(count * shape_.page_elements()));
  values_.resize(keys_.size());
  bounds_.resize(static_cast<std::size_t>(count) * 2 * shape_.head_dim);
  for (std::int32_t p = 0; p < count; ++p) {
    decode_keys(shape_, kv.k_page(table[p], kv_head), keys_.data() + p * shape_.page_elements());
    decode_values(shape_, kv.v_page(table[p], kv_head),
                  values_.data() + p * shape_.page_elements());
    decode_summary(shape_, kv.summary(table[p], kv_head),
                   bounds_.data() + std::int64_t{p} * 2 * shape_.head_dim);
  }
}

void probe_query(const HeadPages& pages, const ProbedQuery& query, HeadFidelity& sums) {
  FullAttention full;
  compute_logits(pages, query, full);
  compute_output(pages, full);
  sums.tokens += 1;
  sums.page_share +=
      static_cast<double>(query.read.size()) / static_cast<double>(pages.num_pages());
  for (const std::int32_t page : query.read)
    sums.mass += full.page_mass[static_cast<std::size_t>(page)];
  const std::vector<std::int32_t> wanted = top_pages(pages, full, query.top);
  const auto found = std::count_if(wanted.begin(), wanted.end(), [&](std::int32_t page) {
    return std::binary_search(query.read.begin(), query.read.end(), page);
  });
  sums.page_recall += static_cast<double>(found) / static_cast<double>(wanted.size());
  add_scores(pages, query, full, sums);
  add_output_error(query, full, sums);
}

}  // namespace quest::eval
