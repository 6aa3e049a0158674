// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
// Certificates of the CPU backend against brute force over the stored keys: what was left out must
// be what the certificate says, for any keys.
#include "quest/certificate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <sstream>

#include "attention/cpu_harness.h"
#include "attention/every_target.h"
#include "cache/kv_access.h"
#include "quest/error.h"

namespace quest::test {
namespace {

using quest::testing::key_at;
using quest::testing::value_at;

/// What makes a search hard or easy.
enum class Keys {
  kUniform,
  kWalk,      ///< neighbours are alike: pages differ from each other
  kOutliers,  ///< a few channels a hundred times the others
  kEqual,     ///< all keys the same
  kIntegers,  ///< many exact ties
  kFlat,      ///< each page repeats one key: bounds without slack
  kFew,       ///< few channels that are not 0: close bounds
  kPermuted,  ///< each page repeats one key, of the same numbers in another order
  kHuge,      ///< logits far beyond what exp can hold
};
constexpr Keys kAllKeys[] = {Keys::kUniform,  Keys::kWalk, Keys::kOutliers, Keys::kEqual,
                             Keys::kIntegers, Keys::kFlat, Keys::kFew,      Keys::kHuge};

/// Keys of `count` tokens of one head: [count, head_dim].
std::vector<float> make_keys(Keys kind, std::int64_t count, const CacheShape& shape,
                             std::mt19937& random) {
  std::normal_distribution<float> normal(0, 1);
  const std::int64_t d = shape.head_dim;
  std::vector<float> keys(static_cast<std::size_t>(count * d));
  for (std::int64_t t = 0; t < count; ++t) {
    for (std::int64_t j = 0; j < d; ++j) {
      float& x = keys[static_cast<std::size_t>(t * d + j)];
      const float before = t > 0 ? keys[static_cast<std::size_t>((t - 1) * d + j)] : 0;
      x = normal(random);
      switch (kind) {
        case Keys::kUniform:
          break;
        case Keys::kWalk:
          if (t > 0) x = 0.997F * before + 0.05F * x;
          break;
        case Keys::kOutliers:
          if (j % 31 == 5) x *= 100;
          break;
        case Keys::kEqual:
          if (t > 0) x = before;
          break;
        case Keys::kIntegers:
          x = std::round(x);
          break;
        case Keys::kFlat:
          if (t % shape.page_size != 0) x = before;
          break;
        case Keys::kFew:
          x = j % 32 == 3 ? 3 * x : 0;
          break;
        case Keys::kPermuted:
          x = t > 0 ? before : x;
          break;
        case Keys::kHuge:
          x *= 1000;
          break;
      }
    }
  }
  if (kind != Keys::kPermuted) return keys;
  for (std::int64_t t = 0; t < count; ++t) {
    const auto key = keys.begin() + t * d;
    if (t % shape.page_size == 0) {
      std::shuffle(key, key + d, random);
    } else {
      std::copy(key - d, key, key);
    }
  }
  return keys;
}

struct Case {
  CacheShape shape;
  std::int32_t group = 1;
  SelectionPolicy policy;
  Keys keys = Keys::kUniform;
  std::vector<std::int64_t> lengths;  ///< tokens of each request, its last one the query's own
  float q_size = 1;
  float q_offset = 0;
  float scale = 0.125F;
  int threads = 1;
  std::uint32_t seed = 1;

  std::string describe() const {
    std::ostringstream text;
    text << to_string(policy.certificate) << " keys " << static_cast<int>(keys) << " page_size "
         << shape.page_size << " head_dim " << shape.head_dim << " kv_heads " << shape.num_kv_heads
         << " group " << group << " type " << name_of(shape.type) << " summary "
         << name_of(shape.summary_type) << " budget " << policy.budget << " q " << q_size
         << " threads " << threads << " seed " << seed << " lengths";
    for (const std::int64_t length : lengths) text << ' ' << length;
    return text.str();
  }
};

/// One decode step of all requests of a case.
struct Step {
  explicit Step(const Case& c)
      : cache(c.shape), backend(make_cpu_backend(cache, c.policy)), data(fill(c)) {
    Batch batch;
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      add_request(batch, cache, sequences[i], 1, true);
    }
    backend->begin_step(batch, data->input.num_q_heads, c.threads);
    run_team(c.threads,
             [&](Team& team, int thread) { backend->forward(data->input, team, thread); });
    selection = backend->last_selection();
    backend->end_step();
  }

  /// Writes every request's tokens but the last, which becomes the step's input.
  std::unique_ptr<LayerData> fill(const Case& c) {
    const CacheShape& shape = c.shape;
    const auto rows = static_cast<std::int64_t>(c.lengths.size());
    auto layer = std::make_unique<LayerData>(shape, c.group, 0, rows, c.seed, Values::kUniform);
    layer->input.scale = c.scale;
    for (float& x : layer->q) x = x * c.q_size + c.q_offset;
    std::mt19937 random(c.seed);
    std::normal_distribution<float> normal(0, 1);
    for (std::int64_t r = 0; r < rows; ++r) {
      const std::int64_t length = c.lengths[static_cast<std::size_t>(r)];
      const SequenceId id = cache.create();
      sequences.push_back(id);
      cache.reserve(id, length);
      for (std::int32_t head = 0; head < shape.num_kv_heads; ++head) {
        const auto k = make_keys(c.keys, length, shape, random);
        std::vector<float> v(k.size());
        for (float& x : v) x = normal(random);
        cache.append(0, head, id, 0, length - 1, k.data(), shape.head_dim, v.data(),
                     shape.head_dim);
        cache.summarise(0, head, id, 0, length - 1);
        const std::int64_t own = r * layer->input.k_stride + std::int64_t{head} * shape.head_dim;
        std::copy_n(k.end() - shape.head_dim, shape.head_dim, layer->k.begin() + own);
        std::copy_n(v.end() - shape.head_dim, shape.head_dim, layer->v.begin() + own);
      }
    }
    return layer;
  }

  std::vector<SequenceId> sequences;
  KvCache cache;
  std::unique_ptr<AttentionBackend> backend;
  std::unique_ptr<LayerData> data;
  SelectedPages selection;
};

/// Everything about one query head of one row, from the stored keys and values in float64.
class BruteForce {
 public:
  BruteForce(const Step& step, const Case& c, std::size_t request, std::int32_t kv_head,
             std::int32_t member)
      : shape_(c.shape), kv_(step.cache.layer(0)), kv_head_(kv_head) {
    const std::int64_t d = shape_.head_dim;
    const std::size_t list =
        request * static_cast<std::size_t>(shape_.num_kv_heads) + static_cast<std::size_t>(kv_head);
    head_offset_ = static_cast<std::int64_t>(list) * c.group * d + member * d;
    const float* q = step.data->q.data() + head_offset_;
    table_ = step.cache.pages(step.sequences[request]);
    const std::vector<std::int32_t> pages(
        step.selection.pages.begin() + step.selection.indptr[list],
        step.selection.pages.begin() + step.selection.indptr[list + 1]);
    for (std::int64_t t = 0; t < c.lengths[request]; ++t) {
      double dot = 0;
      for (std::int64_t j = 0; j < d; ++j) dot += double{q[j]} * key(t, j);
      dots.push_back(dot);
      read.push_back(std::binary_search(pages.begin(), pages.end(),
                                        static_cast<std::int32_t>(t / shape_.page_size)));
    }
    greatest_ = *std::max_element(dots.begin(), dots.end());
    scale_ = c.scale;
  }

  /// The r-th greatest q·k, or the least if there are fewer keys.
  double rth(std::int64_t r) const {
    std::vector<double> sorted = dots;
    std::sort(sorted.begin(), sorted.end(), std::greater<>());
    return sorted[std::min(static_cast<std::size_t>(r), sorted.size()) - 1];
  }
  double weight(std::size_t t) const { return std::exp(scale_ * (dots[t] - greatest_)); }
  double unread_mass() const {
    double unread = 0;
    double total = 0;
    for (std::size_t t = 0; t < dots.size(); ++t) {
      total += weight(t);
      if (!read[t]) unread += weight(t);
    }
    return unread / total;
  }
  /// Attention over all tokens, or over those read.
  std::vector<double> output(bool all) const {
    std::vector<double> o(static_cast<std::size_t>(shape_.head_dim), 0.0);
    double total = 0;
    for (std::size_t t = 0; t < dots.size(); ++t) {
      if (!all && !read[t]) continue;
      total += weight(t);
      for (std::size_t j = 0; j < o.size(); ++j) {
        o[j] += weight(t) * value(static_cast<std::int64_t>(t), static_cast<std::int64_t>(j));
      }
    }
    for (double& x : o) x /= total;
    return o;
  }
  double greatest_value_norm() const {
    double most = 0;
    for (std::size_t t = 0; t < dots.size(); ++t) {
      double norm = 0;
      for (std::int64_t j = 0; j < shape_.head_dim; ++j) {
        norm += std::pow(value(static_cast<std::int64_t>(t), j), 2);
      }
      most = std::max(most, std::sqrt(norm));
    }
    return most;
  }
  std::int64_t head_offset() const { return head_offset_; }

  std::vector<double> dots;  ///< q·k of every token
  std::vector<bool> read;    ///< whether its page is in the list

 private:
  double key(std::int64_t t, std::int64_t j) const {
    return key_at(kv_, page(t), kv_head_, t % shape_.page_size, j);
  }
  double value(std::int64_t t, std::int64_t j) const {
    return value_at(kv_, page(t), kv_head_, t % shape_.page_size, j);
  }
  std::int32_t page(std::int64_t t) const {
    return table_[static_cast<std::size_t>(t / shape_.page_size)];
  }

  const CacheShape& shape_;
  PagedKv kv_;
  std::int32_t kv_head_;
  std::span<const std::int32_t> table_;
  std::int64_t head_offset_ = 0;
  double greatest_ = 0;
  double scale_ = 1;
};

/// Calls body(brute force) for every query head of every row.
void for_each_head(const Step& step, const Case& c,
                   const std::function<void(const BruteForce&)>& body) {
  for (std::size_t r = 0; r < c.lengths.size(); ++r) {
    for (std::int32_t head = 0; head < c.shape.num_kv_heads; ++head) {
      for (std::int32_t member = 0; member < c.group; ++member) {
        body(BruteForce(step, c, r, head, member));
      }
    }
  }
}

void check_top_r(const Step& step, const Case& c) {
  for_each_head(step, c, [&](const BruteForce& brute) {
    const double least = brute.rth(c.policy.certificate.r);
    for (std::size_t t = 0; t < brute.dots.size(); ++t) {
      if (brute.read[t]) continue;
      ASSERT_LT(brute.dots[t], least) << "token " << t << " is among the best and was not read";
    }
  });
}

double distance(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (std::size_t j = 0; j < a.size(); ++j) sum += (a[j] - b[j]) * (a[j] - b[j]);
  return std::sqrt(sum);
}

void check_mass(const Step& step, const Case& c) {
  const double reported = step.backend->counters().certificates.epsilon_max;
  ASSERT_LE(reported, c.policy.certificate.epsilon);
  for_each_head(step, c, [&](const BruteForce& brute) {
    const double unread = brute.unread_mass();
    ASSERT_LE(unread, reported);
    const double most = brute.greatest_value_norm();
    const std::vector<double> full = brute.output(true);
    ASSERT_LE(distance(full, brute.output(false)), 2 * reported * most * (1 + 1e-12));
    // The same of what the kernels computed, but for their rounding.
    const float* served = step.data->out.data() + brute.head_offset();
    const std::vector<double> out(served, served + c.shape.head_dim);
    ASSERT_LE(distance(full, out), 2 * reported * most + 1e-3 * most);
  });
}

Certificate any_certificate(std::mt19937& random) {
  constexpr std::int64_t kRanks[] = {1, 2, 5, 16, 100};
  constexpr double kShares[] = {0.5, 0.1, 0.01, 1e-4};
  if (random() % 2 == 0) return {CertificateKind::kTopR, kRanks[random() % 5], 0.1};
  return {CertificateKind::kMass, 1, kShares[random() % 4]};
}

Case any_case(std::mt19937& random) {
  constexpr KvType kTypes[] = {KvType::kF32, KvType::kF16, KvType::kBF16, KvType::kQ8_0};
  constexpr std::int32_t kHeadDims[] = {64, 80, 96};
  constexpr SummaryType kSummaries[] = {SummaryType::kPlain, SummaryType::kQ8, SummaryType::kQ4};
  Case c;
  c.seed = static_cast<std::uint32_t>(random());
  c.keys = kAllKeys[random() % std::size(kAllKeys)];
  c.group = 1 + static_cast<std::int32_t>(random() % 4);
  c.threads = 1 + static_cast<int>(random() % 3);
  c.q_size = random() % 3 == 0 ? 0.1F : 4.0F;
  if (c.keys == Keys::kHuge) c.q_size = 300;
  c.shape = {1,
             1 + static_cast<std::int32_t>(random() % 2),
             kHeadDims[random() % 3],
             random() % 2 == 0 ? 8 : 16,
             kTypes[random() % 4],
             0,
             kSummaries[random() % 3]};
  c.policy.budget = c.shape.page_size * static_cast<std::int64_t>(1 + random() % 4);
  c.policy.sinks = static_cast<std::int32_t>(random() % 20);
  c.policy.window = static_cast<std::int32_t>(random() % 20);
  c.policy.dense_layers = 0;
  c.policy = c.policy.with_certificate(any_certificate(random));
  const std::int64_t size = c.shape.page_size;
  for (std::size_t i = 0, requests = 1 + random() % 3; i < requests; ++i) {
    const std::int64_t tails[] = {0, 1, size - 1, size + 1};
    const auto pages = 3 + static_cast<std::int64_t>(random() % 20);
    c.lengths.push_back(pages * size + tails[random() % 4]);
    c.shape.num_pages += pages + 3;
  }
  return c;
}

void check_random_cases(std::uint32_t seed, int cases) {
  std::mt19937 random(seed);
  std::int64_t searches = 0;
  std::int64_t sparse = 0;
  for (int i = 0; i < cases; ++i) {
    const Case c = any_case(random);
    SCOPED_TRACE(c.describe());
    const Step step(c);
    const CertificateCounters& counters = step.backend->counters().certificates;
    searches += counters.lists;
    sparse += counters.lists - counters.fallbacks;
    if (c.policy.certificate.kind == CertificateKind::kTopR) {
      check_top_r(step, c);
    } else {
      check_mass(step, c);
    }
    if (::testing::Test::HasFatalFailure()) return;
  }
  EXPECT_GT(sparse * 10, searches) << "too few lists left anything out for this to mean much";
}

TEST(CertifiedCpu, NothingThatMattersIsLeftOut) {
#if defined(__SANITIZE_THREAD__)
  check_random_cases(7, 40);  // brute force takes minutes there, and a race needs few cases
#else
  check_random_cases(2024, 400);
#endif
}

class CertifiedOnEveryTarget : public EveryTarget {};
INSTANTIATE_TEST_SUITE_P(Targets, CertifiedOnEveryTarget, ::testing::ValuesIn(runnable_targets()),
                         target_name);

TEST_P(CertifiedOnEveryTarget, NothingThatMattersIsLeftOut) { check_random_cases(7, 40); }

TEST(CertifiedCpu, HugeNumbersReadEverything) {
  // Sums beyond float32: nothing can be claimed of any page.
  std::mt19937 random(3);
  Case c;
  c.shape = {1, 1, 64, 8, KvType::kF32, 20};
  c.policy.budget = 8;
  c.policy.dense_layers = 0;
  c.lengths = {100};
  c.keys = Keys::kHuge;
  c.q_size = 1e36F;
  for (const char* text : {"top-r=1", "mass=0.5"}) {
    c.policy = c.policy.with_certificate(*parse_certificate(text));
    const Step step(c);
    const AttentionCounters& counters = step.backend->counters();
    EXPECT_EQ(counters.certificates.fallbacks, 1);
    EXPECT_EQ(counters.pages_read, 13);
    EXPECT_EQ(counters.probe_bytes, 0);
  }
}

/// One head whose page p holds key (x_p, 0, …): logits and bounds are x_p · q.
Case flat_case(const char* certificate) {
  Case c;
  c.shape = {1, 1, 64, 8, KvType::kF32, 60};
  c.policy.budget = 16;
  c.policy.sinks = 0;
  c.policy.window = 1;
  c.policy.dense_layers = 0;
  c.policy = c.policy.with_certificate(*parse_certificate(certificate));
  c.keys = Keys::kFlat;
  c.lengths = {400};
  c.q_size = 4;
  return c;
}

TEST(CertifiedCpu, CountsWhatItRead) {
  // Bounds without slack: the tail and one page are the first batch and prove themselves best.
  const Case c = flat_case("top-r=1");
  const Step step(c);
  const AttentionCounters& counters = step.backend->counters();
  const std::int64_t page = c.shape.page_bytes();
  EXPECT_EQ(counters.pages_read, 2);
  EXPECT_EQ(counters.k_bytes, 2 * page);
  EXPECT_EQ(counters.v_bytes, 2 * page);
  EXPECT_EQ(counters.probe_bytes, 2 * page) << "their keys were read before, to certify";
  EXPECT_EQ(counters.summary_bytes, 50 * c.shape.summary_bytes());
  EXPECT_EQ(counters.bytes_read(), 6 * page + counters.summary_bytes);
  EXPECT_EQ(counters.dense_bytes, 100 * page);
  EXPECT_EQ(counters.sparse_lists, 1);
  EXPECT_EQ(counters.certificates.lists, 1);
  EXPECT_EQ(counters.certificates.fallbacks, 0);
  EXPECT_EQ(counters.certificates.pages, 2);
  EXPECT_EQ(counters.certificates.pages_seen, 50);
  EXPECT_EQ(counters.certificates.pages_p95(), 2);
}

TEST(CertifiedCpu, EqualKeysReadEverything) {
  // Every page may tie with the best: no page can be left out.
  Case c = flat_case("top-r=1");
  c.keys = Keys::kEqual;
  const Step step(c);
  EXPECT_EQ(step.backend->counters().certificates.fallbacks, 1);
  EXPECT_EQ(step.backend->counters().dense_lists, 1);
  EXPECT_EQ(step.backend->counters().pages_read, 50);
}

TEST(CertifiedCpu, KeysThatOnlyRoundingTellsApartAreAllRead) {
  // With a query of equal numbers all logits are the same but for the order of the additions, and
  // bounds have no slack: what was computed as a little less must not be left out.
  Case c = flat_case("top-r=1");
  c.keys = Keys::kPermuted;
  c.q_size = 0;
  c.q_offset = 0.3F;
  for (c.seed = 1; c.seed < 20; ++c.seed) {
    const Step step(c);
    EXPECT_EQ(step.backend->counters().certificates.fallbacks, 1) << "seed " << c.seed;
  }
}

TEST(CertifiedCpu, SmallerEpsilonReadsMore) {
  std::int64_t before = 0;
  for (const char* text : {"mass=0.5", "mass=0.1", "mass=0.01", "mass=0.0001"}) {
    Case c = flat_case(text);
    c.scale = 0.5F;
    const Step step(c);
    const CertificateCounters& counters = step.backend->counters().certificates;
    EXPECT_GE(counters.pages, before) << text;
    EXPECT_GT(counters.epsilon_max, 0) << text;
    EXPECT_LE(counters.epsilon_max, c.policy.certificate.epsilon) << text;
    before = counters.pages;
  }
  EXPECT_GT(before, 2);
}

TEST(CertifiedCpu, DenseLayersAndShortRowsNeedNoSearch) {
  Case c = flat_case("top-r=1");
  c.policy.dense_layers = 1;
  EXPECT_EQ(Step(c).backend->counters().certificates.lists, 0);
  c = flat_case("top-r=1");
  c.lengths = {16, 9, 400};
  EXPECT_EQ(Step(c).backend->counters().certificates.lists, 1);
}

TEST(CertifiedCpu, NaNIsReported) {
  Case c = flat_case("mass=0.1");
  for (const auto make : {make_cpu_backend, make_reference_backend}) {
    Side side(c.shape, 2, c.policy, make);
    side.add({100, 1, true}, 1);
    side.alter = [](LayerData& data) { data.q[3] = std::nanf(""); };
    EXPECT_THROW(side.step(2), Error);
  }
}

TEST(CertifiedCpu, PolicyMayChangeBetweenSteps) {
  const CacheShape shape{1, 2, 64, 8, KvType::kF16, 60};
  Side side(shape, 3, flat_case("top-r=100").policy, make_cpu_backend, 2);
  side.add({150, 1, true}, 1);
  side.add({90, 1, true}, 2);
  for (const char* text : {"top-r=2", "mass=0.2", "top-r=500", "mass=0.9"}) {
    side.backend->set_policy(flat_case(text).policy);
    side.step(3);
    EXPECT_GT(side.backend->counters().certificates.lists, 0);
  }
  side.backend->set_policy(SelectionPolicy{});
  side.backend->reset_counters();
  side.step(4);
  EXPECT_EQ(side.backend->counters().certificates.lists, 0);
  EXPECT_EQ(side.backend->counters().probe_bytes, 0);
}

}  // namespace
}  // namespace quest::test
