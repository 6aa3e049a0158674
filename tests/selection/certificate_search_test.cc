// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "selection/certificate_search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "attention/reference/reference_certificate.h"
#include "selection/rounding_margin.h"

namespace quest {
namespace {

using Pages = std::vector<std::int32_t>;

/// A search over pages whose logits are known: what LayerRun does with kernels.
struct Known {
  std::vector<std::vector<float>> bounds;               ///< [group][P]
  std::vector<std::vector<std::vector<float>>> logits;  ///< [group][P][tokens]
  std::int32_t sink_end = 0;
  std::int32_t recent_begin = 0;
  std::int64_t page_budget = 1;
  std::int32_t page_size = 1;
  float scale = 1;
  double margin = 0;

  std::int32_t num_pages() const { return static_cast<std::int32_t>(bounds[0].size()); }
  std::int32_t group() const { return static_cast<std::int32_t>(bounds.size()); }
};

struct Found {
  Pages pages;
  std::vector<Pages> batches;
  double epsilon = 0;
  std::int32_t probed = 0;
};

Found search(const Certificate& certificate, const Known& known) {
  CertificateSearch search;
  search.reserve(certificate, known.group(), known.num_pages(), known.page_size);
  std::vector<float> bounds;
  for (const auto& row : known.bounds) bounds.insert(bounds.end(), row.begin(), row.end());
  const std::vector<double> margins(known.bounds.size(), known.margin);
  SearchStart start;
  start.bounds = bounds.data();
  start.stride = known.num_pages();
  start.margins = margins.data();
  start.forced = {known.num_pages(), known.sink_end, known.recent_begin};
  start.page_budget = known.page_budget;
  start.page_size = known.page_size;
  start.scale = known.scale;
  search.start(start);
  Found found;
  for (auto batch = search.next_batch(); !batch.empty(); batch = search.next_batch()) {
    found.batches.emplace_back(batch.begin(), batch.end());
    for (std::int32_t h = 0; h < known.group(); ++h) {
      for (const std::int32_t p : batch) {
        const auto& page = known.logits[static_cast<std::size_t>(h)][static_cast<std::size_t>(p)];
        if (certificate.kind == CertificateKind::kTopR) {
          search.add_logits(h, page);
          continue;
        }
        const float greatest = *std::max_element(page.begin(), page.end());
        float sum = 0;
        for (const float x : page) sum += std::exp(known.scale * (x - greatest));
        search.add_mass(h, greatest, sum);
      }
    }
  }
  found.pages.resize(bounds.size());
  found.pages.resize(static_cast<std::size_t>(search.list(found.pages.data())));
  found.epsilon = search.epsilon();
  found.probed = search.pages_probed();
  return found;
}

Certificate top_r(std::int64_t r) { return {CertificateKind::kTopR, r, 0.1}; }
Certificate mass(double epsilon) { return {CertificateKind::kMass, 1, epsilon}; }

/// SPEC S3.2, the last row: pages A, B, C, D with (true maximum, U), and a tail page that matters
/// little, because a tail page is always read.
Known right_bound_wrong_recall() {
  Known known;
  known.bounds = {{10, 14, 12, 4, 0}};
  known.logits = {{{10}, {3}, {2}, {1}, {0}}};
  known.recent_begin = 4;
  known.page_budget = 3;
  return known;
}

TEST(CertificateSearch, WorkedValue_TopOneFindsWhatTopKMisses) {
  const Found found = search(top_r(1), right_bound_wrong_recall());
  ASSERT_EQ(found.batches.size(), 2U);
  EXPECT_EQ(found.batches[0], (Pages{1, 2, 4})) << "K = 2 and the tail: A is missed";
  EXPECT_EQ(found.batches[1], (Pages{0})) << "the bound says that A may hold more than 3";
  EXPECT_EQ(found.pages, (Pages{0, 1, 2, 4})) << "D cannot hold more than 10";
  EXPECT_EQ(found.probed, 4);
}

TEST(CertificateSearch, WrongBoundLosesTheBestKey) {
  // The guarantee stands on the bound alone: understate A's, and A is lost.
  Known known = right_bound_wrong_recall();
  known.bounds[0][0] = 2.5F;
  EXPECT_EQ(search(top_r(1), known).pages, (Pages{1, 2, 3, 4}));
}

TEST(CertificateSearch, TopR_ReadsOnWhileAPageMayReachTheRthBest) {
  const Known known = right_bound_wrong_recall();
  EXPECT_EQ(search(top_r(2), known).pages, (Pages{0, 1, 2, 3, 4})) << "D's 4 is above B's 3";
  Known lower = known;
  lower.bounds[0][3] = 2.5F;
  EXPECT_EQ(search(top_r(2), lower).pages, (Pages{0, 1, 2, 4}));
}

TEST(CertificateSearch, TopR_EqualLogitsAreAllRead) {
  Known known = right_bound_wrong_recall();
  known.bounds[0][3] = 10;  // could tie with A
  EXPECT_EQ(search(top_r(1), known).pages, (Pages{0, 1, 2, 3, 4}));
}

TEST(CertificateSearch, TopR_MarginKeepsPagesThatRoundingMayHide) {
  Known known = right_bound_wrong_recall();
  known.bounds[0][3] = 9.5F;
  EXPECT_EQ(search(top_r(1), known).pages, (Pages{0, 1, 2, 4}));
  known.margin = 0.3;  // 9.5 + 0.3 ≥ 10 - 0.3
  EXPECT_EQ(search(top_r(1), known).pages, (Pages{0, 1, 2, 3, 4}));
}

TEST(CertificateSearch, MoreThanThereAreKeysReadsEverything) {
  const Found found = search(top_r(6), right_bound_wrong_recall());
  EXPECT_EQ(found.pages, (Pages{0, 1, 2, 3, 4}));
}

TEST(CertificateSearch, UnusableMarginReadsEverythingWithoutProbing) {
  Known known = right_bound_wrong_recall();
  known.margin = std::numeric_limits<double>::infinity();
  for (const Certificate& certificate : {top_r(1), mass(0.5)}) {
    const Found found = search(certificate, known);
    EXPECT_EQ(found.pages, (Pages{0, 1, 2, 3, 4}));
    EXPECT_EQ(found.probed, 0);
    EXPECT_EQ(found.epsilon, 0);
  }
}

TEST(CertificateSearch, WorkedValue_Mass) {
  // Read: exp(ln 6) + exp(ln 3) = 9; unread: 2 keys below ln 0.5 each, so ε = 1 / 10.
  Known known;
  const float low = std::log(0.5F);
  known.bounds = {{low, std::log(6.0F), std::log(3.0F)}};
  known.logits = {{{-9, -9}, {std::log(6.0F), -99}, {std::log(3.0F), -99}}};
  known.recent_begin = 2;
  known.page_budget = 2;
  known.page_size = 2;
  Found found = search(mass(0.11), known);
  EXPECT_EQ(found.pages, (Pages{1, 2}));
  EXPECT_NEAR(found.epsilon, 0.1, 1e-4);
  EXPECT_GE(found.epsilon, 0.1) << "rounded up, never down";
  found = search(mass(0.09), known);
  EXPECT_EQ(found.pages, (Pages{0, 1, 2}));
  EXPECT_EQ(found.epsilon, 0);
  known.scale = 2;  // read 36 + 9, unread 2 · 0.25
  found = search(mass(0.09), known);
  EXPECT_NEAR(found.epsilon, 0.5 / 45.5, 1e-5);
  known.margin = 0.1;  // both sides, in the exponent
  EXPECT_NEAR(search(mass(0.09), known).epsilon, 0.5 * std::exp(0.4) / (45 + 0.5 * std::exp(0.4)),
              1e-5);
}

TEST(CertificateSearch, Mass_HugeSlackReadsEverythingInsteadOfGuessing) {
  Known known = right_bound_wrong_recall();
  known.bounds[0] = {10, 3000, 12, 4, 0};  // exp(10 - 3000) is nothing in float64
  const Found found = search(mass(0.5), known);
  EXPECT_EQ(found.pages, (Pages{0, 1, 2, 3, 4}));
}

/// Random pages of random slack. Some bounds and logits tie.
Known random_case(std::mt19937& random, std::int32_t group) {
  std::normal_distribution<float> normal(0, 2);
  const auto pages = static_cast<std::int32_t>(5 + random() % 150);
  Known known;
  known.page_size = 4;
  known.scale = random() % 2 == 0 ? 1.0F : 0.25F;
  known.sink_end = static_cast<std::int32_t>(random() % 2);
  known.recent_begin = pages - 1 - static_cast<std::int32_t>(random() % 2);
  const std::int64_t forced = known.sink_end + pages - known.recent_begin;
  known.page_budget = forced + static_cast<std::int64_t>(random() % 3);
  const auto tail = 1 + random() % 4;
  for (std::int32_t h = 0; h < group; ++h) {
    known.bounds.emplace_back();
    known.logits.emplace_back();
    for (std::int32_t p = 0; p < pages; ++p) {
      std::vector<float> page(p + 1 == pages ? tail : 4);
      for (float& x : page) x = std::round(4 * normal(random)) / 4;
      const float slack = std::round(std::abs(normal(random)));
      known.bounds.back().push_back(*std::max_element(page.begin(), page.end()) + slack);
      known.logits.back().push_back(page);
    }
  }
  return known;
}

/// The same pages for the reference.
reference::CertificateCase as_reference(const Known& known) {
  reference::CertificateCase given;
  for (std::size_t h = 0; h < known.bounds.size(); ++h) {
    given.bounds.emplace_back(known.bounds[h].begin(), known.bounds[h].end());
    given.logits.emplace_back();
    for (const auto& page : known.logits[h]) {
      given.logits.back().emplace_back(page.begin(), page.end());
    }
  }
  for (std::int32_t p = 0; p < known.sink_end; ++p) given.forced.push_back(p);
  for (std::int32_t p = known.recent_begin; p < known.num_pages(); ++p) given.forced.push_back(p);
  given.page_budget = known.page_budget;
  given.scale = known.scale;
  return given;
}

TEST(CertificateSearch, RandomPages_SameListsAsTheReference) {
  std::mt19937 random(11);
  int sparse = 0;
  for (int trial = 0; trial < 1000; ++trial) {
    const Known known = random_case(random, 1 + trial % 4);
    Certificate certificate = top_r(1 + static_cast<std::int64_t>(random() % 9));
    if (trial % 2 == 1) certificate = mass(trial % 4 == 1 ? 0.3 : 0.05);
    const Found found = search(certificate, known);
    const reference::CertifiedList want = reference::certify(certificate, as_reference(known));
    ASSERT_EQ(found.pages, want.pages) << "trial " << trial << ' ' << to_string(certificate);
    ASSERT_EQ(found.probed, want.probed) << "trial " << trial;
    if (certificate.kind == CertificateKind::kMass) {
      ASSERT_NEAR(found.epsilon, want.epsilon, 1e-4 * want.epsilon) << "trial " << trial;
      ASSERT_GE(found.epsilon, want.epsilon);
    }
    if (static_cast<std::int32_t>(found.pages.size()) < known.num_pages()) ++sparse;
  }
  EXPECT_GT(sparse, 300) << "the searches must leave something out";
}

TEST(CertificateSearch, RandomPages_NothingThatMattersIsLeftOut) {
  std::mt19937 random(12);
  for (int trial = 0; trial < 1000; ++trial) {
    const Known known = random_case(random, 1 + trial % 4);
    const std::int64_t r = 1 + static_cast<std::int64_t>(random() % 9);
    const Found top = search(top_r(r), known);
    const Found most = search(mass(0.1), known);
    for (std::size_t h = 0; h < known.bounds.size(); ++h) {
      std::vector<float> all;
      double unread = 0;
      double total = 0;
      for (std::int32_t p = 0; p < known.num_pages(); ++p) {
        const bool read = std::binary_search(most.pages.begin(), most.pages.end(), p);
        for (const float x : known.logits[h][static_cast<std::size_t>(p)]) {
          all.push_back(x);
          total += std::exp(double{known.scale} * x);
          if (!read) unread += std::exp(double{known.scale} * x);
        }
      }
      ASSERT_LE(unread / total, most.epsilon) << "trial " << trial;
      ASSERT_LE(most.epsilon, 0.1);
      std::sort(all.begin(), all.end(), std::greater<>());
      const float least = all[std::min(static_cast<std::size_t>(r), all.size()) - 1];
      for (std::int32_t p = 0; p < known.num_pages(); ++p) {
        if (std::binary_search(top.pages.begin(), top.pages.end(), p)) continue;
        for (const float x : known.logits[h][static_cast<std::size_t>(p)]) {
          ASSERT_LT(x, least) << "trial " << trial << " page " << p;
        }
      }
    }
  }
}

/// q·k in float32, one addition after the other.
float float_dot(const std::vector<float>& a, const std::vector<float>& b) {
  float sum = 0;
  for (std::size_t j = 0; j < a.size(); ++j) sum += a[j] * b[j];
  return sum;
}

TEST(RoundingMargin, CoversFloat32SumsOfEveryMagnitude) {
  std::mt19937 random(5);
  std::uniform_real_distribution<float> uniform(-1, 1);
  for (int trial = 0; trial < 2000; ++trial) {
    const std::int32_t d = trial % 2 == 0 ? 64 : 256;
    std::vector<float> q;
    std::vector<float> k;
    std::vector<float> magnitudes;
    for (std::int32_t j = 0; j < d; ++j) {
      const auto power = static_cast<int>(random() % 20) - 10 + (trial % 3) * 20;
      q.push_back(std::ldexp(uniform(random), power));
      k.push_back(std::ldexp(uniform(random), -power / 2));
      magnitudes.push_back(std::abs(k.back()));
    }
    double exact = 0;
    for (std::size_t j = 0; j < q.size(); ++j) exact += double{q[j]} * k[j];
    const double margin = rounding_margin(q.data(), magnitudes.data(), d, 0.125F, KvType::kF16);
    EXPECT_LE(std::abs(float_dot(q, k) - exact), margin);
    EXPECT_LE(margin, rounding_margin(q.data(), magnitudes.data(), d, 0.125F, KvType::kQ8_0));
  }
}

TEST(RoundingMargin, IsSmallBesideTheLogits) {
  const std::vector<float> ones(64, 1.0F);
  const double plain = rounding_margin(ones.data(), ones.data(), 64, 1, KvType::kF32);
  EXPECT_GT(plain, 64 * 0x1p-24);
  EXPECT_LT(plain, 64 * 6e-6);
  EXPECT_LT(rounding_margin(ones.data(), ones.data(), 64, 1, KvType::kQ8_0), 64 * 3e-5);
}

TEST(RoundingMargin, NearTheEndOfTheRangeNothingIsClaimed) {
  const float inf = std::numeric_limits<float>::infinity();
  std::vector<float> q(64, 1.0F);
  std::vector<float> magnitudes(64, 1.0F);
  EXPECT_LT(rounding_margin(q.data(), magnitudes.data(), 64, 1, KvType::kF32), 1);
  magnitudes[3] = inf;
  EXPECT_EQ(rounding_margin(q.data(), magnitudes.data(), 64, 1, KvType::kF32), inf);
  q[3] = 0;
  EXPECT_EQ(rounding_margin(q.data(), magnitudes.data(), 64, 1, KvType::kF32), inf);
  magnitudes[3] = 1e37F;
  q[3] = 10;
  EXPECT_EQ(rounding_margin(q.data(), magnitudes.data(), 64, 1, KvType::kF32), inf);
}

}  // namespace
}  // namespace quest
