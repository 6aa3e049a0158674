// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
// The SIMD kernels themselves, on every instruction set that this machine runs.
#include "attention/cpu/kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>
#include <string>

#include "attention/cpu/vnni.h"
#include "attention/cpu_harness.h"
#include "attention/every_target.h"
#include "attention/reference/reference_selection.h"
#include "cache/page_codec.h"
#include "core/elements.h"
#include "selection/fold_query.h"
#include "selection/rounding_margin.h"

namespace quest::test {
namespace {

INSTANTIATE_TEST_SUITE_P(Kernels, EveryTarget, testing::ValuesIn(runnable_targets()), target_name);

constexpr SummaryType kSummaries[] = {SummaryType::kPlain, SummaryType::kQ8, SummaryType::kQ4};

TEST_P(EveryTarget, Backend_MatchesReference) {
  std::uint32_t seed = 1;
  for (const KvType type : {KvType::kF32, KvType::kF16, KvType::kBF16, KvType::kQ8_0}) {
    for (const std::int32_t page_size : {8, 16, 64}) {
      for (const std::int32_t head_dim : {64, 80}) {
        const std::int32_t group = 1 + static_cast<std::int32_t>(seed % 9);
        const std::vector<Request> requests{
            {5 * page_size + 3, 1, true}, {3 * page_size - 1, 1, false}, {7, 25, false}};
        SelectionPolicy policy;
        policy.budget = 3 * page_size;
        policy.dense_layers = 0;
        policy.window = 1;
        const CacheShape shape{1,
                               1,
                               head_dim,
                               page_size,
                               type,
                               pages_needed(requests, page_size),
                               kSummaries[seed % 3]};
        Side cpu(shape, group, policy, make_cpu_backend, 2);
        Side reference(shape, group, policy, make_reference_backend);
        for (Side* side : {&cpu, &reference}) {
          for (const Request& request : requests) side->add(request, seed);
          side->step(seed + 7);
        }
        ++seed;
        ASSERT_EQ(cpu.selections[0].pages, reference.selections[0].pages) << "seed " << seed;
        for (std::size_t i = 0; i < cpu.outputs[0].size();
             i += static_cast<std::size_t>(head_dim)) {
          ASSERT_LE(
              relative_error(cpu.outputs[0].data() + i, reference.outputs[0].data() + i, head_dim),
              2e-5)
              << "page_size " << page_size << " head_dim " << head_dim << " group " << group;
        }
      }
    }
  }
}

/// The integer products of q8_0 keys are the same with and without VNNI, so the outputs are too.
TEST(Kernels, Vnni_ChangesNoBit) {
  const std::vector<Request> requests{{100, 1, true}, {300, 1, false}};
  for (const std::int32_t page_size : {8, 16, 32}) {
    for (const std::int32_t group : {1, 3, 8}) {
      SelectionPolicy policy;
      policy.budget = 2 * page_size;
      policy.dense_layers = 0;
      policy.window = 1;
      const CacheShape shape{1, 1, 80, page_size, KvType::kQ8_0, pages_needed(requests, page_size)};
      std::vector<float> outputs[2];
      for (const bool allowed : {false, true}) {
        cpu::allow_vnni(allowed);
        Side side(shape, group, policy, make_cpu_backend, 1);
        for (const Request& request : requests) side.add(request, 3);
        side.step(4);
        outputs[allowed ? 1 : 0] = side.outputs[0];
      }
      EXPECT_EQ(outputs[0], outputs[1]) << "page_size " << page_size << " group " << group;
    }
  }
}

struct ScoreCase {
  ScoreCase(KvType type, std::int32_t head_dim, std::int32_t pages, std::int32_t rows)
      : values(random_values(static_cast<std::size_t>(pages * 2 * head_dim), 5, Values::kUniform)),
        coefficients(
            random_values(static_cast<std::size_t>(rows * 2 * head_dim), 6, Values::kUniform)),
        table(static_cast<std::size_t>(pages)),
        scores(static_cast<std::size_t>(rows * pages), -99.0F) {
    const auto count = static_cast<std::int64_t>(values.size());
    bytes.resize(values.size() * size_of(type));
    encode(type, values.data(), bytes.data(), count);
    decode(type, bytes.data(), values.data(), count);
    std::iota(table.rbegin(), table.rend(), 0);  // backwards
    args.summaries = bytes.data();
    args.stride = 2 * head_dim * static_cast<std::int64_t>(size_of(type));
    args.table = table.data();
    args.head_dim = head_dim;
    args.coefficients = coefficients.data();
    args.rows = rows;
    args.scores = scores.data();
    args.scores_stride = pages;
  }
  ScoreCase(const ScoreCase&) = delete;

  double exact(std::int32_t row, std::int32_t page) const {
    const std::int32_t length = 2 * args.head_dim;
    double sum = 0;
    for (std::int32_t j = 0; j < length; ++j) {
      sum += double{coefficients[row * length + j]} * values[table[page] * length + j];
    }
    return sum;
  }

  std::vector<float> values;
  std::vector<float> coefficients;
  std::vector<std::byte> bytes;
  std::vector<std::int32_t> table;
  std::vector<float> scores;
  cpu::ScoreArgs args;
};

TEST_P(EveryTarget, Score_IsTheDotProductAndNeverDependsOnTheSplit) {
  for (const KvType type : {KvType::kF32, KvType::kF16, KvType::kBF16}) {
    const cpu::Kernels kernels = cpu::kernels_for({1, 1, 64, 16, type, 1});
    for (const std::int32_t head_dim : {64, 80, 256}) {
      for (const std::int32_t rows : {1, 2, 3, 4, 7}) {
        constexpr std::int32_t kPages = 29;
        ScoreCase whole(type, head_dim, kPages, rows);
        whole.args.count = kPages;
        kernels.score(whole.args);
        for (std::int32_t r = 0; r < rows; ++r) {
          for (std::int32_t p = 0; p < kPages; ++p) {
            EXPECT_NEAR(whole.scores[r * kPages + p], whole.exact(r, p), 2e-4);
          }
        }
        ScoreCase pieces(type, head_dim, kPages, rows);
        for (std::int32_t first = 0, count = 1; first < kPages; first += count, ++count) {
          pieces.args.first = first;
          pieces.args.count = std::min(count, kPages - first);
          kernels.score(pieces.args);
        }
        EXPECT_EQ(pieces.scores, whole.scores);
      }
    }
  }
}

/// Pages of rounded summaries of one KV head, scored and decoded.
struct RoundedScoreCase {
  static constexpr std::int32_t kPages = 29;

  RoundedScoreCase(SummaryType summary, std::int32_t head_dim, std::int32_t rows)
      : shape{1, 1, head_dim, 8, KvType::kF16, kPages, summary},
        cache(shape),
        q(random_values(static_cast<std::size_t>(rows * head_dim), 6, Values::kUniform)),
        coefficients(2 * q.size()),
        table(kPages),
        scores(static_cast<std::size_t>(rows * kPages), -99.0F) {
    const std::int64_t tokens = std::int64_t{8} * kPages;
    const LayerData data(shape, 1, 0, tokens, 5, Values::kUniform);
    const SequenceId id = cache.create();
    cache.reserve(id, tokens);
    cache.append(0, 0, id, 0, tokens, data.input.k, data.input.k_stride, data.input.v,
                 data.input.v_stride);
    cache.summarise(0, 0, id, 0, tokens);
    const auto fold = summary == SummaryType::kQ4 ? fold_query_to_box : fold_query;
    for (std::int32_t r = 0; r < rows; ++r) {
      fold(query(r), head_dim, 1, head_dim, 1,
           coefficients.data() + std::int64_t{2} * r * head_dim);
    }
    std::iota(table.rbegin(), table.rend(), 0);  // backwards
    args.summaries = cache.layer(0).summary(0, 0);
    args.stride = shape.summary_bytes();
    args.table = table.data();
    args.head_dim = head_dim;
    args.coefficients = coefficients.data();
    args.rows = rows;
    args.scores = scores.data();
    args.scores_stride = kPages;
  }
  RoundedScoreCase(const RoundedScoreCase&) = delete;

  const float* query(std::int32_t row) const {
    return q.data() + std::int64_t{row} * shape.head_dim;
  }
  /// [2, head_dim] of a logical page.
  std::vector<float> bounds(std::int32_t page) const {
    std::vector<float> decoded(static_cast<std::size_t>(2 * shape.head_dim));
    decode_summary(shape, cache.layer(0).summary(table[static_cast<std::size_t>(page)], 0),
                   decoded.data());
    return decoded;
  }

  CacheShape shape;
  KvCache cache;
  std::vector<float> q;  ///< [rows, head_dim]
  std::vector<float> coefficients;
  std::vector<std::int32_t> table;
  std::vector<float> scores;
  cpu::ScoreArgs args;
};

/// Greatest magnitudes by the kernel, which must be those of the decoded bounds.
std::vector<float> checked_magnitudes(const RoundedScoreCase& c) {
  std::vector<float> most(static_cast<std::size_t>(c.shape.head_dim), 0.0F);
  cpu::MagnitudeArgs args;
  args.summaries = c.args.summaries;
  args.stride = c.args.stride;
  args.table = c.args.table;
  args.head_dim = c.shape.head_dim;
  args.count = RoundedScoreCase::kPages;
  args.magnitudes = most.data();
  cpu::kernels_for(c.shape).magnitudes(args);
  std::vector<float> expected(most.size(), 0.0F);
  for (std::int32_t p = 0; p < RoundedScoreCase::kPages; ++p) {
    const std::vector<float> bounds = c.bounds(p);
    for (std::size_t j = 0; j < bounds.size(); ++j) {
      float& greatest = expected[j % expected.size()];
      greatest = std::max(greatest, std::abs(bounds[j]));
    }
  }
  EXPECT_EQ(most, expected);
  return most;
}

/// Runs the body with integer products allowed, and without.
void with_and_without_vnni(const std::function<void()>& body) {
  for (const bool allowed : {false, true}) {
    SCOPED_TRACE(allowed ? "VNNI" : "no VNNI");
    cpu::allow_vnni(allowed);
    body();
  }
}

void check_rounded_scores(SummaryType summary, std::int32_t head_dim, std::int32_t rows) {
  SCOPED_TRACE(std::string(name_of(summary)) + " d " + std::to_string(head_dim));
  constexpr std::int32_t kPages = RoundedScoreCase::kPages;
  RoundedScoreCase whole(summary, head_dim, rows);
  const cpu::Kernels kernels = cpu::kernels_for(whole.shape);
  whole.args.count = kPages;
  kernels.score(whole.args);
  const std::vector<float> most = checked_magnitudes(whole);
  for (std::int32_t p = 0; p < kPages; ++p) {
    const std::vector<float> bounds = whole.bounds(p);
    for (std::int32_t r = 0; r < rows; ++r) {
      const double exact = reference::score_page(whole.query(r), bounds.data(),
                                                 bounds.data() + head_dim, head_dim, 1.0);
      const double margin =
          rounding_margin(whole.query(r), most.data(), head_dim, 1, KvType::kF16, summary);
      EXPECT_NEAR(double{whole.scores[r * kPages + p]}, exact, margin);
      EXPECT_GT(exact, 1000 * margin) << "or the margin says nothing";
    }
  }
  RoundedScoreCase pieces(summary, head_dim, rows);
  for (std::int32_t first = 0, count = 1; first < kPages; first += count, ++count) {
    pieces.args.first = first;
    pieces.args.count = std::min(count, kPages - first);
    kernels.score(pieces.args);
  }
  EXPECT_EQ(pieces.scores, whole.scores);
}

TEST_P(EveryTarget, Score_OfRoundedSummariesIsTheirBoundWithinTheMargin) {
  with_and_without_vnni([] {
    for (const SummaryType summary : {SummaryType::kQ8, SummaryType::kQ4}) {
      for (const std::int32_t head_dim : {64, 80, 128, 256}) {
        for (const std::int32_t rows : {1, 2, 3, 4, 7})
          check_rounded_scores(summary, head_dim, rows);
      }
    }
  });
}

TEST_P(EveryTarget, Score_OfBoxesServesQueriesOfEverySize) {
  with_and_without_vnni([] {
    for (const float size : {1e-25F, 1e-6F, 1.0F, 1e25F}) {
      RoundedScoreCase c(SummaryType::kQ4, 64, 1);
      for (std::size_t j = 0; j < 128; ++j) c.coefficients[j] *= j % 64 < 32 ? size : 0.0F;
      c.args.count = RoundedScoreCase::kPages;
      cpu::kernels_for(c.shape).score(c.args);
      for (std::int32_t p = 0; p < RoundedScoreCase::kPages; ++p) {
        const std::vector<float> bounds = c.bounds(p);
        double exact = 0;
        for (std::size_t j = 0; j < 64; ++j) {
          exact += c.coefficients[j] * (double{bounds[j]} + bounds[64 + j]) / 2;
          exact += c.coefficients[64 + j] * (double{bounds[64 + j]} - bounds[j]) / 2;
        }
        EXPECT_NEAR(c.scores[static_cast<std::size_t>(p)], exact, 1e-3 * size);
      }
    }
  });
}

TEST_P(EveryTarget, Score_OfRoundedSummariesMeetsTheNaN) {
  with_and_without_vnni([] {
    for (const float bad : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
      for (const std::size_t at : {3U, 40U, 64U + 5U, 64U + 63U}) {
        RoundedScoreCase c(SummaryType::kQ4, 64, 2);
        c.coefficients[128 + at] = bad;
        c.args.count = RoundedScoreCase::kPages;
        cpu::kernels_for(c.shape).score(c.args);
        for (std::size_t p = 0; p < RoundedScoreCase::kPages; ++p) {
          EXPECT_TRUE(std::isfinite(c.scores[p]));
          EXPECT_FALSE(std::isfinite(c.scores[RoundedScoreCase::kPages + p]));
        }
      }
    }
    // Of pages 0, 1, … one scale each.
    for (const SummaryType summary : {SummaryType::kQ8, SummaryType::kQ4}) {
      RoundedScoreCase c(summary, 64, 1);
      const std::int32_t scales = summary == SummaryType::kQ8 ? 2 : 4;
      const std::uint16_t nan = 0x7E00;
      for (std::int32_t i = 0; i < scales; ++i) {
        std::byte* const end = c.cache.layer(0).summary(i, 0) + c.shape.summary_bytes();
        std::memcpy(end - std::int64_t{2} * (i + 1), &nan, sizeof nan);
      }
      c.args.count = RoundedScoreCase::kPages;
      cpu::kernels_for(c.shape).score(c.args);
      for (std::size_t p = 0; p < RoundedScoreCase::kPages; ++p) {
        EXPECT_EQ(std::isnan(c.scores[p]), c.table[p] < scales) << name_of(summary) << ' ' << p;
      }
    }
  });
}

TEST_P(EveryTarget, Attend_NothingReadIsTheEmptyPartial) {
  const cpu::Kernels kernels = cpu::kernels_for({1, 1, 64, 16, KvType::kF16, 1});
  std::vector<float> q(3 * 64, 1.0F);
  std::vector<float> o(3 * 64, 7.0F);
  std::vector<float> max(3, 7.0F);
  std::vector<float> sum(3, 7.0F);
  std::vector<float> scratch(static_cast<std::size_t>(cpu::attend_scratch_floats(64)));
  cpu::AttendArgs args;
  args.pages.page_size = 16;
  args.pages.head_dim = 64;
  args.q = q.data();
  args.heads = 3;
  args.last_tokens = 16;
  args.o = o.data();
  args.max = max.data();
  args.sum = sum.data();
  args.scratch = scratch.data();
  kernels.attend(args);
  EXPECT_EQ(o, std::vector<float>(3 * 64, 0.0F));
  EXPECT_EQ(max, std::vector<float>(3, -std::numeric_limits<float>::infinity()));
  EXPECT_EQ(sum, std::vector<float>(3, 0.0F));
}

}  // namespace
}  // namespace quest::test
