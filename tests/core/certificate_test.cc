// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "quest/certificate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "quest/certificate_counters.h"
#include "quest/error.h"
#include "quest/policy.h"

namespace quest {
namespace {

using ::testing::HasSubstr;

Certificate top_r(std::int64_t r) { return {CertificateKind::kTopR, r, 0.1}; }
Certificate mass(double epsilon) { return {CertificateKind::kMass, 1, epsilon}; }

/// The message of what validating throws; empty if nothing.
std::string refusal(const SelectionPolicy& policy) {
  try {
    validate(policy, 2, 2, 16);
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "";
}

TEST(Certificate, TextRoundTrips) {
  for (const char* text : {"top-r=1", "top-r=16", "mass=0.1", "mass=0.001"}) {
    const auto certificate = parse_certificate(text);
    ASSERT_TRUE(certificate) << text;
    EXPECT_EQ(to_string(*certificate), text);
  }
  EXPECT_EQ(to_string(Certificate{}), "none");
  EXPECT_EQ(parse_certificate("top-r=7")->r, 7);
  EXPECT_EQ(parse_certificate("mass=1e-3")->epsilon, 0.001);
}

TEST(Certificate, TextOutOfRangeIsNothing) {
  for (const char* text :
       {"", "none", "top-r", "top-r=", "top-r=0", "top-r=-1", "top-r=1.5", "top-r=x", "top-r=1 ",
        "top-r=99999999999999999999", "mass=", "mass=0", "mass=1", "mass=-0.1", "mass=nan",
        "mass=10%", "mass=0.1x", "Mass=0.1"}) {
    EXPECT_FALSE(parse_certificate(text)) << text;
  }
}

TEST(Certificate, PolicyNeedsTheBoundOfEachQueryHead) {
  SelectionPolicy policy;
  policy.certificate = top_r(1);
  policy.group_mode = GroupMode::kPerHead;
  policy.beta = 0.5F;
  EXPECT_THAT(refusal(policy), AllOf(HasSubstr("beta 0.5"), HasSubstr("give beta 1")));
  policy.beta = 1;
  EXPECT_EQ(refusal(policy), "");
  policy.group_mode = GroupMode::kGroupMax;
  EXPECT_THAT(refusal(policy), AllOf(HasSubstr("group-max"), HasSubstr("per-head")));
  policy.group_mode = GroupMode::kPerHead;
  policy.value_threshold = 0.1F;
  EXPECT_THAT(refusal(policy), AllOf(HasSubstr("value_threshold 0.1"), HasSubstr("give 0")));
  EXPECT_EQ(refusal(policy.with_certificate(mass(0.01))), "");
  EXPECT_EQ(refusal(SelectionPolicy{}.with_certificate(mass(0.01))), "");
}

TEST(Certificate, NumbersOutOfRangeAreRefused) {
  const SelectionPolicy policy;
  EXPECT_THAT(refusal(policy.with_certificate(top_r(0))), HasSubstr("r 0"));
  EXPECT_THAT(refusal(policy.with_certificate(mass(0))), HasSubstr("epsilon 0"));
  EXPECT_THAT(refusal(policy.with_certificate(mass(1))), HasSubstr("epsilon 1"));
  EXPECT_THAT(refusal(policy.with_certificate(mass(std::nan("")))), HasSubstr("epsilon nan"));
}

TEST(PageHistogram, ShortListsAreExact) {
  PageHistogram histogram;
  for (std::int64_t pages = 1; pages <= 20; ++pages) histogram.add(pages);
  EXPECT_EQ(histogram.quantile(0.95), 19);
  EXPECT_EQ(histogram.quantile(0.5), 10);
  EXPECT_EQ(histogram.quantile(1), 20);
  EXPECT_EQ(PageHistogram().quantile(0.95), 0);
}

TEST(PageHistogram, LongListsAreNeverToldShorter) {
  std::mt19937_64 random(3);
  for (int trial = 0; trial < 200; ++trial) {
    PageHistogram histogram;
    std::vector<std::int64_t> all;
    const std::int64_t most = std::int64_t{1} << (1 + trial % 30);
    for (int i = 0; i < 100; ++i) {
      all.push_back(static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(most)));
      histogram.add(all.back());
    }
    std::sort(all.begin(), all.end());
    const std::int64_t exact = all[94];
    EXPECT_GE(histogram.quantile(0.95), exact);
    EXPECT_LE(histogram.quantile(0.95), exact + exact / 16);
  }
}

TEST(CertificateCounters, AddListsAndOtherCounters) {
  CertificateCounters a;
  a.add(10, 40, 0.25);
  a.add(40, 40, 0);
  CertificateCounters b;
  b.add(20, 50, 0.125);
  a += b;
  EXPECT_EQ(a.lists, 3);
  EXPECT_EQ(a.fallbacks, 1);
  EXPECT_EQ(a.pages, 70);
  EXPECT_EQ(a.pages_seen, 130);
  EXPECT_EQ(a.pages_max, 40);
  EXPECT_EQ(a.pages_p95(), 40);
  EXPECT_EQ(a.epsilon_max, 0.25);
  EXPECT_EQ(a.epsilon_sum, 0.375);
}

}  // namespace
}  // namespace quest
