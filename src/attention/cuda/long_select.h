// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "attention/cuda/device.h"

namespace quest::cuda {

/// select for rows that are long for one block: its work space, and the fixed sequence of kernels.
class LongSelect {
 public:
  explicit LongSelect(Device& device)
      : ranges_(device), histograms_(device), marks_(device), parts_done_(device) {}

  /// Whether rows of up to so many pages are for this and not for the select kernel. Which, depends
  /// on capacities alone, so that a captured step can be replayed.
  static bool serves(GroupMode mode, std::int32_t page_capacity);

  /// Makes room for `lists` lists of one pass, over rows of up to so many pages, and points the
  /// arguments there, whose mode and score rows are those of select.
  void prepare(LayerArgs& args, std::int64_t lists, std::int32_t page_capacity);
  /// From the scores of a pass to its lists.
  static void launch(Device& device, const LayerArgs& args, std::int64_t lists);

 private:
  DeviceArray<KeyRange> ranges_;
  DeviceArray<std::int32_t> histograms_;
  DeviceArray<std::uint32_t> marks_;
  DeviceArray<std::int32_t> parts_done_;
};

}  // namespace quest::cuda
