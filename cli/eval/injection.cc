// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "eval/injection.h"

#include <algorithm>
#include <charconv>
#include <string_view>
#include <system_error>
#include <utility>

#include "list_option.h"
#include "quest/error.h"

namespace quest::cli {
namespace {

std::optional<std::int32_t> layer_in(std::string_view text) {
  std::int32_t layer = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), layer);
  if (error != std::errc{} || stop != text.data() + text.size() || layer < 0) return std::nullopt;
  return layer;
}

eval::LayerRange range_in(const std::string& word) {
  const std::size_t dash = word.find('-');
  if (dash != std::string::npos) {
    const auto first = layer_in(std::string_view(word).substr(0, dash));
    const auto last = layer_in(std::string_view(word).substr(dash + 1));
    if (first && last && *first <= *last) return {*first, *last};
  }
  throw InvalidArgument("--inject '" + word +
                        "' must be all, or layers FROM-TO counted from 0, such as 0-9");
}

std::string name_of(eval::LayerRange range) {
  return std::to_string(range.first) + "-" + std::to_string(range.last);
}

}  // namespace

std::vector<std::optional<eval::LayerRange>> parse_injection(const std::string& text) {
  std::vector<std::optional<eval::LayerRange>> ranges;
  if (text.empty()) return ranges;
  for (const std::string& word : parse_words("--inject", text)) {
    if (word == "all") {
      ranges.emplace_back();
    } else {
      ranges.emplace_back(range_in(word));
    }
  }
  return ranges;
}

void add_injection_arms(const std::vector<std::optional<eval::LayerRange>>& ranges,
                        const ModelInfo& info, EvalSetup& setup) {
  const eval::LayerRange all{0, info.num_layers - 1};
  std::vector<eval::LayerRange> wanted;
  for (const std::optional<eval::LayerRange>& given : ranges) {
    const eval::LayerRange range = given.value_or(all);
    if (range.last > all.last) {
      throw InvalidArgument("--inject " + name_of(range) + " reaches beyond the " +
                            std::to_string(info.num_layers) + " layers of '" + info.path +
                            "'; use layers within " + name_of(all) + ", or all");
    }
    const bool known = std::any_of(wanted.begin(), wanted.end(), [range](eval::LayerRange other) {
      return other.first == range.first && other.last == range.last;
    });
    if (!known) wanted.push_back(range);
  }
  std::vector<eval::Arm> arms;
  for (eval::Arm& arm : setup.arms) {
    arms.push_back(std::move(arm));
    if (arms.back().baseline) continue;
    const eval::Arm own = arms.back();
    for (const eval::LayerRange range : wanted) {
      arms.push_back(own);
      arms.back().name += " inject " + name_of(range);
      arms.back().baseline = {eval::BaselineKind::kInject, 0, setup.baselines, range};
    }
  }
  setup.arms = std::move(arms);
}

}  // namespace quest::cli
