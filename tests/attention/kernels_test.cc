// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
// The SIMD kernels themselves, on every instruction set that this machine runs.
#include "attention/cpu/kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

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

TEST_P(EveryTarget, Score_OfRoundedSummariesIsTheirBoundWithinTheMargin) {
  for (const SummaryType summary : {SummaryType::kQ8, SummaryType::kQ4}) {
    for (const std::int32_t head_dim : {64, 80, 256}) {
      for (const std::int32_t rows : {1, 2, 3, 4, 7}) {
        constexpr std::int32_t kPages = RoundedScoreCase::kPages;
        RoundedScoreCase whole(summary, head_dim, rows);
        const cpu::Kernels kernels = cpu::kernels_for(whole.shape);
        whole.args.count = kPages;
        kernels.score(whole.args);

        std::vector<float> most(static_cast<std::size_t>(head_dim), 0.0F);
        cpu::MagnitudeArgs magnitudes;
        magnitudes.summaries = whole.args.summaries;
        magnitudes.stride = whole.args.stride;
        magnitudes.table = whole.args.table;
        magnitudes.head_dim = head_dim;
        magnitudes.count = kPages;
        magnitudes.magnitudes = most.data();
        kernels.magnitudes(magnitudes);
        std::vector<float> expected(most.size(), 0.0F);
        for (std::int32_t p = 0; p < kPages; ++p) {
          const std::vector<float> bounds = whole.bounds(p);
          for (std::size_t j = 0; j < bounds.size(); ++j) {
            float& greatest = expected[j % expected.size()];
            greatest = std::max(greatest, std::abs(bounds[j]));
          }
          for (std::int32_t r = 0; r < rows; ++r) {
            const double exact = reference::score_page(whole.query(r), bounds.data(),
                                                       bounds.data() + head_dim, head_dim, 1.0);
            const double margin =
                rounding_margin(whole.query(r), most.data(), head_dim, 1, KvType::kF16);
            const auto score = static_cast<double>(whole.scores[r * kPages + p]);
            EXPECT_NEAR(score, exact, margin) << name_of(summary) << " d " << head_dim;
            EXPECT_GT(exact, 100 * margin) << "or the margin says nothing";
          }
        }
        EXPECT_EQ(most, expected) << name_of(summary) << " d " << head_dim;

        RoundedScoreCase pieces(summary, head_dim, rows);
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
