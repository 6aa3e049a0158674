// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>

#include "json_output.h"
#include "quest/eval/fidelity.h"

namespace quest::cli {

/// A figure of one query head of one layer that reports show: its name in JSON, what it is, whether
/// larger is better, and its mean.
struct HeadFigure {
  const char* name;
  const char* title;
  bool more_is_better;
  double (*value)(const eval::HeadFidelity& head);
};

/// page_share, page_recall, mass, cosine, relative_l2, regret, slack.
std::span<const HeadFigure> head_figures();

/// The mean of a figure over the heads of all layers that do not read everything; NaN for none.
double sparse_mean(const eval::FidelityRun& run, const HeadFigure& figure);
/// False for the layers that the policy keeps dense.
bool is_sparse_layer(const eval::FidelityRun& run, std::int32_t layer);

/// A page with heat maps of layers and heads, complete in itself: inline SVG, no script, nothing
/// fetched. `facts` are shown as they are, name and value.
std::string fidelity_html(const Json& facts, const eval::FidelityRun& teacher_forced,
                          const eval::FidelityRun& free_running);

}  // namespace quest::cli
