// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
//
// Ways to summarise and score pages, side by side, on synthetic keys with outlier channels, a
// drifting topic and one planted needle a query: which share of the attention mass do the best
// pages hold, and is the needle's page among them? Most of these are not in the library: this
// program says why (docs/selection.md). It needs nothing but a compiler:
//   g++ -std=c++20 -O3 -march=native bench/experiments/page_scores.cc -o page_scores
//   ./page_scores TOKENS BUDGET QUERIES
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace {

using Vector = std::vector<float>;
constexpr int kDim = 128;
const float kScale = 1 / std::sqrt(static_cast<float>(kDim));
/// A needle's logit above the logarithm of the sum of all exponentials: 23 % of the mass.
constexpr double kNeedle = -1.2;

float dot(const float* a, const float* b) {
  float sum = 0;
  for (int j = 0; j < kDim; ++j) sum += a[j] * b[j];
  return sum;
}

struct Queries {
  int tokens = 0;
  Vector keys;                  ///< [tokens, kDim]
  std::vector<Vector> queries;  ///< [queries][kDim]
  std::vector<int> needles;     ///< token of each query's needle

  const float* key(int t) const { return keys.data() + static_cast<std::size_t>(t) * kDim; }
};

/// Logits of one query, and the logarithm of the sum of their exponentials.
struct Logits {
  Vector values;
  double log_sum = 0;
};

Logits logits_of(const Queries& data, const Vector& query) {
  Logits logits;
  for (int t = 0; t < data.tokens; ++t) {
    logits.values.push_back(kScale * dot(query.data(), data.key(t)));
  }
  const float top = *std::max_element(logits.values.begin(), logits.values.end());
  double sum = 0;
  for (const float x : logits.values) sum += std::exp(x - top);
  logits.log_sum = top + std::log(sum);
  return logits;
}

/// Keys: a bias and four times the spread in four outlier channels; elsewhere half of the variance
/// is a topic that drifts over some fifty tokens, half is noise.
Queries make_queries(int tokens, int count) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  Queries data;
  data.tokens = tokens;
  Vector bias(kDim, 0);
  Vector spread(kDim, 1);
  for (int i = 0; i < 4; ++i) {
    const std::size_t j = random() % kDim;
    bias[j] = 8 * normal(random);
    spread[j] = 4;
  }
  Vector topic(kDim);
  for (float& x : topic) x = normal(random);
  for (int t = 0; t < tokens; ++t) {
    for (std::size_t j = 0; j < kDim; ++j) {
      topic[j] = 0.98F * topic[j] + 0.199F * normal(random);
      data.keys.push_back(bias[j] + spread[j] * (0.7F * topic[j] + 0.7F * normal(random)));
    }
  }
  for (int i = 0; i < count; ++i) {
    Vector query(kDim);
    for (std::size_t j = 0; j < kDim; ++j) {
      query[j] = normal(random) * (spread[j] > 1 ? 0.5F : 1.0F);
    }
    const int needle = static_cast<int>(random() % static_cast<unsigned>(tokens - 64));
    const double wanted = logits_of(data, query).log_sum + kNeedle;
    float* key = data.keys.data() + static_cast<std::size_t>(needle) * kDim;
    const float missing = static_cast<float>(wanted) / kScale - dot(query.data(), key);
    const float part = missing / dot(query.data(), query.data());
    for (std::size_t j = 0; j < kDim; ++j) key[j] += part * query[j];
    data.queries.push_back(std::move(query));
    data.needles.push_back(needle);
  }
  return data;
}

/// Two numbers a channel and page: minimum and maximum, or mean and variance.
struct Summaries {
  int pages = 0;
  Vector first;
  Vector second;

  const float* a(int p) const { return first.data() + static_cast<std::size_t>(p) * kDim; }
  const float* b(int p) const { return second.data() + static_cast<std::size_t>(p) * kDim; }
};

Summaries summarise(const Vector& keys, int size, bool moments) {
  Summaries result;
  result.pages = static_cast<int>(keys.size()) / kDim / size;
  for (int p = 0; p < result.pages; ++p) {
    const float* page = keys.data() + static_cast<std::size_t>(p) * size * kDim;
    for (int j = 0; j < kDim; ++j) {
      float low = page[j];
      float high = page[j];
      float sum = 0;
      float squares = 0;
      for (int t = 0; t < size; ++t) {
        const float x = page[t * kDim + j];
        low = std::min(low, x);
        high = std::max(high, x);
        sum += x;
        squares += x * x;
      }
      const float mean = sum / static_cast<float>(size);
      result.first.push_back(moments ? mean : low);
      result.second.push_back(
          moments ? std::max(0.0F, squares / static_cast<float>(size) - mean * mean) : high);
    }
  }
  return result;
}

float squared_distance(const float* a, const float* b) {
  float sum = 0;
  for (int j = 0; j < kDim; ++j) sum += (a[j] - b[j]) * (a[j] - b[j]);
  return sum;
}

using Cluster = std::vector<const float*>;  ///< keys

/// Two means, started from the two keys farthest apart. Neither side is empty.
std::pair<Cluster, Cluster> halves(const Cluster& keys) {
  const float* a = keys.front();
  const float* b = keys.back();
  for (const float* x : keys) {
    for (const float* y : keys) {
      if (squared_distance(x, y) > squared_distance(a, b)) {
        a = x;
        b = y;
      }
    }
  }
  Vector centres[2] = {Vector(a, a + kDim), Vector(b, b + kDim)};
  // What equal keys, which no distance tells apart, are left with.
  std::pair<Cluster, Cluster> parts = {{keys.begin(), keys.begin() + 1},
                                       {keys.begin() + 1, keys.end()}};
  for (int round = 0; round < 4; ++round) {
    std::pair<Cluster, Cluster> next;
    for (const float* key : keys) {
      const bool left =
          squared_distance(key, centres[0].data()) <= squared_distance(key, centres[1].data());
      (left ? next.first : next.second).push_back(key);
    }
    if (next.first.empty() || next.second.empty()) break;
    parts = next;
    for (const auto& [part, centre] :
         {std::pair{&parts.first, centres}, std::pair{&parts.second, centres + 1}}) {
      std::fill(centre->begin(), centre->end(), 0.0F);
      for (const float* key : *part) {
        for (std::size_t j = 0; j < kDim; ++j) {
          (*centre)[j] += key[j] / static_cast<float>(part->size());
        }
      }
    }
  }
  return parts;
}

void add_box(const Cluster& keys, Summaries& to) {
  for (int j = 0; j < kDim; ++j) {
    const auto [low, high] = std::minmax_element(
        keys.begin(), keys.end(), [j](const float* x, const float* y) { return x[j] < y[j]; });
    to.first.push_back((*low)[j]);
    to.second.push_back((*high)[j]);
  }
  ++to.pages;
}

/// `count` boxes a page (a power of two), each around keys that lie close together, wherever they
/// stand in the page.
void add_clusters(const Cluster& keys, int count, Summaries& to) {
  if (count == 1) return add_box(keys, to);
  const auto parts = keys.size() == 1 ? std::pair{keys, keys} : halves(keys);
  add_clusters(parts.first, count / 2, to);
  add_clusters(parts.second, count / 2, to);
}

Summaries clustered(const Vector& keys, int size, int count) {
  Summaries result;
  for (std::size_t first = 0; first < keys.size(); first += static_cast<std::size_t>(size) * kDim) {
    Cluster page;
    for (int t = 0; t < size; ++t) page.push_back(keys.data() + first + std::size_t(t) * kDim);
    add_clusters(page, count, result);
  }
  return result;
}

void hadamard(float* x) {
  for (int half = 1; half < kDim; half *= 2) {
    for (int i = 0; i < kDim; i += 2 * half) {
      for (int j = i; j < i + half; ++j) {
        const float a = x[j];
        const float b = x[j + half];
        x[j] = a + b;
        x[j + half] = a - b;
      }
    }
  }
  for (int j = 0; j < kDim; ++j) x[j] *= kScale;
}

/// q·c + β·|q|·r of a box.
float box_score(const Vector& q, const float* low, const float* high, float beta) {
  float score = 0;
  for (std::size_t j = 0; j < kDim; ++j) {
    score += q[j] * (low[j] + high[j]) / 2 + beta * std::abs(q[j]) * (high[j] - low[j]) / 2;
  }
  return score;
}

/// From a query to one score a page.
using Score = std::function<Vector(const Vector&)>;

Score each_page(int pages, std::function<float(const Vector&, int)> score) {
  return [=](const Vector& q) {
    Vector scores;
    for (int p = 0; p < pages; ++p) scores.push_back(score(q, p));
    return scores;
  };
}

Score boxes(const Summaries& s, int boxes_a_page, float beta) {
  return each_page(s.pages / boxes_a_page, [&s, boxes_a_page, beta](const Vector& q, int p) {
    float best = box_score(q, s.a(p * boxes_a_page), s.b(p * boxes_a_page), beta);
    for (int i = p * boxes_a_page + 1; i < (p + 1) * boxes_a_page; ++i) {
      best = std::max(best, box_score(q, s.a(i), s.b(i), beta));
    }
    return best;
  });
}

Score rotated(const Summaries& s, float beta) {
  return [score = boxes(s, 1, beta)](const Vector& q) {
    Vector r = q;
    hadamard(r.data());
    return score(r);
  };
}

/// q·mean + ½·β·scale·Σq²var: the second-order logarithm of the page's mean exp(logit).
Score mean_and_variance(const Summaries& s, float beta) {
  return each_page(s.pages, [&s, beta](const Vector& q, int p) {
    float spread = 0;
    for (std::size_t j = 0; j < kDim; ++j) spread += q[j] * q[j] * s.b(p)[j];
    return dot(q.data(), s.a(p)) + beta / 2 * kScale * spread;
  });
}

/// q·mean + β·sqrt(Σq²var).
Score mean_and_deviation(const Summaries& s, float beta) {
  return each_page(s.pages, [&s, beta](const Vector& q, int p) {
    float spread = 0;
    for (std::size_t j = 0; j < kDim; ++j) spread += q[j] * q[j] * s.b(p)[j];
    return dot(q.data(), s.a(p)) + beta * std::sqrt(spread);
  });
}

/// q·mean + β·‖q‖·sd.
Score mean_and_radius(const Summaries& s, float beta) {
  return each_page(s.pages, [&s, beta](const Vector& q, int p) {
    const float variance = std::accumulate(s.b(p), s.b(p) + kDim, 0.0F) / kDim;
    return dot(q.data(), s.a(p)) + beta * std::sqrt(dot(q.data(), q.data()) * variance);
  });
}

struct Way {
  std::string name;
  int page_size = 16;
  Score score;  ///< null: the page's true greatest logit
  int found = 0;
  double mass = 0;
};

void take_pages(Way& way, const Queries& data, std::size_t query, const Logits& logits,
                int budget) {
  const int size = way.page_size;
  Vector scores;
  if (way.score) {
    scores = way.score(data.queries[query]);
  } else {
    for (int t = 0; t < data.tokens; t += size) {
      const auto first = logits.values.begin() + t;
      scores.push_back(*std::max_element(first, first + size));
    }
  }
  std::vector<int> pages(scores.size());
  std::iota(pages.begin(), pages.end(), 0);
  const auto end = pages.begin() + budget / size;
  std::partial_sort(pages.begin(), end, pages.end(), [&](int a, int b) {
    const auto x = scores[static_cast<std::size_t>(a)];
    const auto y = scores[static_cast<std::size_t>(b)];
    return x != y ? x > y : a < b;
  });
  for (auto page = pages.begin(); page != end; ++page) {
    if (*page == data.needles[query] / size) ++way.found;
    for (int t = *page * size; t < (*page + 1) * size; ++t) {
      way.mass += std::exp(logits.values[static_cast<std::size_t>(t)] - logits.log_sum);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  const int tokens = argc > 1 ? std::atoi(argv[1]) / 64 * 64 : 32768;
  const int budget = argc > 2 ? std::atoi(argv[2]) : 1024;
  const int count = argc > 3 ? std::atoi(argv[3]) : 64;
  if (tokens < 128 || budget < 16 || budget >= tokens || count < 1) {
    std::fputs("usage: page_scores TOKENS BUDGET QUERIES, the budget below the tokens\n", stderr);
    return 2;
  }
  const Queries data = make_queries(tokens, count);
  Vector turned = data.keys;
  for (int t = 0; t < tokens; ++t) hadamard(turned.data() + static_cast<std::size_t>(t) * kDim);
  const Summaries box16 = summarise(data.keys, 16, false);
  const Summaries box8 = summarise(data.keys, 8, false);
  const Summaries box4 = summarise(data.keys, 4, false);
  const Summaries two16 = clustered(data.keys, 16, 2);
  const Summaries four16 = clustered(data.keys, 16, 4);
  const Summaries four32 = clustered(data.keys, 32, 4);
  const Summaries turned16 = summarise(turned, 16, false);
  const Summaries moments16 = summarise(data.keys, 16, true);
  const Summaries moments8 = summarise(data.keys, 8, true);

  std::vector<Way> ways;
  for (const float beta : {1.0F, 0.5F, 0.35F}) {
    const std::string b = ", beta " + std::to_string(beta).substr(0, 4);
    ways.push_back({"min/max" + b, 16, boxes(box16, 1, beta)});
    ways.push_back({"min/max, page 8" + b, 8, boxes(box8, 1, beta)});
    ways.push_back({"two boxes" + b, 16, boxes(box8, 2, beta)});
    ways.push_back({"four boxes" + b, 16, boxes(box4, 4, beta)});
    ways.push_back({"two clusters" + b, 16, boxes(two16, 2, beta)});
    ways.push_back({"four clusters" + b, 16, boxes(four16, 4, beta)});
    ways.push_back({"four clusters, page 32" + b, 32, boxes(four32, 4, beta)});
    ways.push_back({"min/max, rotated" + b, 16, rotated(turned16, beta)});
  }
  for (const float beta : {0.5F, 1.0F, 2.0F}) {
    const std::string b = ", beta " + std::to_string(beta).substr(0, 4);
    ways.push_back({"mean, variance" + b, 16, mean_and_variance(moments16, beta)});
    ways.push_back({"mean, variance, page 8" + b, 8, mean_and_variance(moments8, beta)});
    ways.push_back({"mean, deviation" + b, 16, mean_and_deviation(moments16, beta)});
    ways.push_back({"mean, |q| sd" + b, 16, mean_and_radius(moments16, beta)});
  }
  ways.push_back({"greatest logit", 16, nullptr});
  ways.push_back({"greatest logit, page 8", 8, nullptr});

  for (std::size_t i = 0; i < data.queries.size(); ++i) {
    const Logits logits = logits_of(data, data.queries[i]);
    for (Way& way : ways) take_pages(way, data, i, logits, budget);
  }
  std::printf("%d tokens, budget %d, %d queries\n%-36s %8s %8s\n", tokens, budget, count, "",
              "needles", "mass");
  for (const Way& way : ways) {
    std::printf("%-36s %5d/%d %8.3f\n", way.name.c_str(), way.found, count, way.mass / count);
  }
  return 0;
}
