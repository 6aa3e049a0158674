// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
// What the score kernel leaves behind for each part of 64 pages, on the emulator: scores, and with
// group-softmax what the pages that are free to choose give to the softmax of each query head.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "attention/grid_case.h"
#include "cuda/stepper.h"
#include "selection/forced_pages.h"

namespace quest::test {
namespace {

/// Two requests of different lengths, so that parts of several rows lie one after the other: 141
/// pages and 65, of 8 tokens.
constexpr std::int64_t kTokens[] = {1124, 513};

struct Pass {
  cuda::LayerArgs args;
  std::vector<cuda::Row> rows;
};

/// Decodes a token after each context and returns what the score kernel saw, and now holds.
Pass score_rows(Stepper& stepper, std::int32_t group) {
  const CacheShape& shape = stepper.cache.shape();
  for (const std::int64_t tokens : kTokens) {
    const SequenceId id = stepper.cache.create();
    stepper.sequences.push_back(id);
    stepper.cache.reserve(id, tokens);
    const LayerData data(shape, 1, 0, tokens, static_cast<std::uint32_t>(tokens), Values::kUniform);
    for (std::int32_t head = 0; head < 2; ++head) {
      stepper.cache.append(0, head, id, 0, tokens, data.input.k + std::int64_t{head} * 64,
                           data.input.k_stride, data.input.v, data.input.v_stride);
      stepper.cache.summarise(0, head, id, 0, tokens);
    }
  }
  const Batch batch = stepper.batch_of({{0, 1, true}, {0, 1, true}});
  LayerData data(shape, group, 0, 2, 2, Values::kUniform);
  stepper.run(batch, data);
  for (const RecordingDevice::Launch& launch : stepper.device.launches) {
    if (launch.kernel != cuda::Kernel::kScore) continue;
    return {launch.args, {launch.args.rows, launch.args.rows + launch.args.counts->rows}};
  }
  ADD_FAILURE() << "nothing was scored";
  return {};
}

ForcedPages forced_of(const SelectionPolicy& policy, const cuda::Row& row, std::int32_t pages) {
  return forced_pages(std::int64_t{row.num_pages - 1} * 8 + row.tail_tokens, 8, policy.sinks,
                      policy.window, pages);
}

struct Case {
  std::int32_t sinks;  ///< tokens
  std::int32_t window;
  std::int32_t budget;  ///< pages
  int empty_parts;      ///< without a page that is free to choose
};

/// Parts of which none, some or all pages are free to choose.
TEST(CudaScore, GroupSoftmax_EveryPartHasItsShare) {
  for (const Case& c : {Case{0, 0, 20, 1},             // the tail page of the second request
                        Case{4, 12, 20, 1},            // the same, and the page before it
                        Case{8 * 70, 8 * 65, 138, 2},  // of the first, pages 70 to 75 are free
                        Case{8 * 64, 8 * 4, 72, 1}}) {
    const std::int32_t group = 3;
    SelectionPolicy policy = policy_of(GroupMode::kGroupSoftmax, std::int64_t{8} * c.budget);
    policy.sinks = c.sinks;
    policy.window = c.window;
    Stepper stepper({1, 2, 64, 8, KvType::kF16, 240}, policy);
    const Pass pass = score_rows(stepper, group);
    const cuda::LayerArgs& args = pass.args;
    std::int64_t part = 0;
    int empty = 0;
    for (std::size_t r = 0; r < 2; ++r) {
      const cuda::Row& row = pass.rows[r];
      const ForcedPages forced = forced_of(policy, row, c.budget);
      for (std::int32_t first = 0; first < row.num_pages; first += cuda::kScorePart, ++part) {
        for (std::int64_t head = 0; head < 2 && row.num_pages > c.budget; ++head) {
          const float* const scores =
              args.scores + (static_cast<std::int64_t>(r) * 2 + head) * args.scores_per_list;
          for (std::int64_t h = 0; h < group; ++h) {
            const float* const mine = scores + h * args.scores_stride;
            double top = -INFINITY;
            double sum = 0;
            const std::int32_t begin = std::max(first, forced.sink_end);
            const std::int32_t end = std::min(first + cuda::kScorePart, forced.recent_begin);
            for (std::int32_t p = begin; p < end; ++p) top = std::fmax(top, double{mine[p]});
            for (std::int32_t p = begin; p < end; ++p)
              sum += std::exp(args.scale * (mine[p] - top));
            const cuda::SoftmaxPart& got = args.softmax_parts[(part * 2 + head) * group + h];
            ASSERT_EQ(got.top, static_cast<float>(top)) << "row " << r << " page " << first;
            ASSERT_NEAR(got.sum, sum, 1e-5 * sum) << "row " << r << " page " << first;
            if (begin >= end) ++empty;
          }
        }
      }
    }
    EXPECT_EQ(empty, c.empty_parts * 2 * group) << "sinks " << c.sinks;
  }
}

}  // namespace
}  // namespace quest::test
