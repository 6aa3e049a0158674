// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "attention/cuda/device.h"
#include "attention/cuda/long_select.h"
#include "cuda/emulator/emulated_device.h"
#include "selection/group_selection.h"

namespace quest::test {

inline constexpr std::int32_t kPageSize = 8;

/// Scores of one (row, KV head), and how pages are to be chosen by them.
struct SelectCase {
  GroupMode mode = GroupMode::kGroupMean;
  std::int32_t group = 1;
  std::int32_t num_pages = 1;
  std::int32_t tail_tokens = kPageSize;
  std::int32_t budget = 1;  ///< pages
  std::int32_t sinks = 0;
  std::int32_t window = 0;
  float scale = 1;
  bool several_blocks = false;  ///< whatever the length
  std::vector<float> scores;    ///< [score rows, num_pages]

  ForcedPages forced() const {
    return forced_pages(std::int64_t{num_pages - 1} * kPageSize + tail_tokens, kPageSize, sinks,
                        window, budget);
  }
  float score(std::int32_t row, std::int32_t page) const {
    return scores[static_cast<std::size_t>(row) * num_pages + page];
  }
};

struct Selected {
  std::vector<std::int32_t> pages;
  std::vector<float> combined;  ///< the group's scores, of modes that combine
  cuda::StepReport report;
};

/// What the score kernel leaves of the softmax of each query head (tests/cuda/score_test.cc), for
/// two KV heads of which the second is the case's: [part, 2, group].
inline std::vector<cuda::SoftmaxPart> softmax_parts_of(const SelectCase& c) {
  const ForcedPages forced = c.forced();
  const std::int32_t parts = (c.num_pages + cuda::kScorePart - 1) / cuda::kScorePart;
  // Greater garbage in the other head's place is never looked at.
  std::vector<cuda::SoftmaxPart> all(static_cast<std::size_t>(2 * parts) * c.group, {1e30F, 1e30F});
  for (std::int32_t part = 0; part < parts; ++part) {
    const std::int32_t first = std::max(part * cuda::kScorePart, forced.sink_end);
    const std::int32_t end = std::min((part + 1) * cuda::kScorePart, forced.recent_begin);
    for (std::int32_t h = 0; h < num_score_rows(c.mode, c.group); ++h) {
      float top = -std::numeric_limits<float>::infinity();
      for (std::int32_t p = first; p < end; ++p) top = std::fmax(top, c.score(h, p));
      double sum = 0;
      for (std::int32_t p = first; p < end; ++p) {
        sum += std::isinf(top) ? (c.score(h, p) == top ? 1 : 0)
                               : std::exp(double{c.scale} * (double{c.score(h, p)} - top));
      }
      all[static_cast<std::size_t>(2 * part + 1) * c.group + h] = {top, static_cast<float>(sum)};
    }
  }
  return all;
}

/// Runs the kernels from scores to the page list on the emulator.
inline Selected run_select(const SelectCase& c) {
  const auto device = emulator::make_device();
  // One row whose second KV head selects; the first reads everything and is left alone.
  cuda::LayerArgs args;
  args.shape.num_kv_heads = 2;
  args.shape.head_dim = 64;
  args.shape.page_shift = 3;
  args.layer = 5;
  args.group = c.group;
  args.scale = c.scale;
  args.mode = c.mode;
  args.sinks = c.sinks;
  args.window = c.window;
  const cuda::StepCounts counts{1, 0, 0};
  const cuda::Row row{0, c.num_pages, c.tail_tokens, 1, 0};
  const cuda::HeadBudget budgets[2] = {{c.num_pages, c.num_pages}, {c.budget, c.budget}};
  const std::int32_t part_indptr[2] = {0, (c.num_pages + cuda::kScorePart - 1) / cuda::kScorePart};
  args.counts = &counts;
  args.rows = &row;
  args.budgets = budgets;
  args.part_indptr = part_indptr;
  args.score_rows = num_score_rows(c.mode, c.group);
  args.scores_stride = c.num_pages + 5;
  const std::int32_t rows = args.score_rows + (cuda::combines_scores(c.mode) ? 1 : 0);
  args.scores_per_list = rows * args.scores_stride;
  // Greater garbage beyond the pages and in the other head's place is never selected.
  std::vector<float> scores(static_cast<std::size_t>(2 * args.scores_per_list), 1e30F);
  const auto mine = scores.begin() + args.scores_per_list;
  for (std::int32_t r = 0; r < args.score_rows; ++r) {
    std::copy_n(c.scores.begin() + std::int64_t{r} * c.num_pages, c.num_pages,
                mine + r * args.scores_stride);
  }
  std::vector<cuda::SoftmaxPart> softmax_parts = softmax_parts_of(c);
  args.scores = scores.data();
  args.softmax_parts = softmax_parts.data();
  args.first_scored = 0;
  args.end_scored = 1;
  args.list_stride = max_selected_pages(c.mode, c.group, c.budget, c.num_pages);
  std::vector<std::int32_t> lists(static_cast<std::size_t>(2 * args.list_stride), -1);
  std::int32_t list_count[2] = {-1, -1};
  args.lists = lists.data();
  args.list_count = list_count;
  Selected selected;
  selected.report.nan_place = cuda::StepReport::kNoNan;
  args.report = &selected.report;
  if (cuda::combines_scores(c.mode)) {
    device->launch(cuda::Kernel::kCombine, args, 3);
    cuda::take_combined_scores(args);
    const auto combined = mine + c.group * args.scores_stride;
    selected.combined.assign(combined, combined + c.num_pages);
  }
  cuda::LongSelect long_select(*device);
  if (c.several_blocks || cuda::LongSelect::serves(c.mode, c.num_pages)) {
    long_select.prepare(args, 2, c.num_pages);
    cuda::LongSelect::launch(*device, args, 2);
  } else {
    device->launch(cuda::Kernel::kSelect, args, 2);
  }
  EXPECT_EQ(list_count[0], -1);
  if (list_count[1] < 0) return selected;
  selected.pages.assign(lists.begin() + args.list_stride,
                        lists.begin() + args.list_stride + list_count[1]);
  return selected;
}

}  // namespace quest::test
