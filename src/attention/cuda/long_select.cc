// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "attention/cuda/long_select.h"

namespace quest::cuda {

namespace {

/// Choices of a list that are made apart.
std::int64_t num_choices(const LayerArgs& args) {
  return args.mode == GroupMode::kPerHead ? args.score_rows : 1;
}

}  // namespace

bool LongSelect::serves(GroupMode mode, std::int32_t page_capacity) {
  // The heads of kQuota choose one after the other.
  return page_capacity > kSelectKeys && mode != GroupMode::kQuota;
}

void LongSelect::prepare(LayerArgs& args, std::int64_t lists, std::int32_t page_capacity) {
  args.select_parts = (page_capacity + kSelectPart - 1) / kSelectPart;
  const std::int64_t choices = lists * num_choices(args);
  ranges_.grow(choices * args.select_parts);
  histograms_.grow(choices * kSelectBins);
  marks_.grow(choices * args.select_parts * (2 * kSelectPart / 32));
  parts_done_.grow(lists);
  args.key_ranges = ranges_.data();
  args.key_histograms = histograms_.data();
  args.candidate_marks = marks_.data();
  args.parts_done = parts_done_.data();
}

void LongSelect::launch(Device& device, const LayerArgs& args, std::int64_t lists) {
  const std::int64_t blocks = lists * num_choices(args) * args.select_parts;
  for (const Kernel kernel :
       {Kernel::kSelectRange, Kernel::kSelectHistogram, Kernel::kSelectNarrow}) {
    device.launch(kernel, args, blocks);
  }
}

}  // namespace quest::cuda
