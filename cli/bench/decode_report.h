// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "bench/chart.h"
#include "bench/decode.h"
#include "bench/probe.h"
#include "bench/table.h"
#include "json_output.h"

namespace quest::cli {

/// All that `quest bench decode` found.
struct DecodeFigures {
  std::vector<DecodeBenchRow> rows;
  std::int64_t weight_bytes = 0;  ///< that one step reads
  ReadBandwidth bandwidth;
};

/// How the figures of these tables came about.
inline constexpr const char* kDecodeNote =
    "Rates are medians over runs in which the engines take turns, from the slope over emitted "
    "tokens. bandwidth %: weights and KV that a step reads, as a share of the best read bandwidth.";

/// The row's fields in `quest bench decode --json`.
Json decode_fields(const DecodeBenchRow& row, const DecodeFigures& figures);

/// One ratio for each quest row: over dense and over the faster of llama.cpp's two settings, beside
/// the share of the read bandwidth that the dense arm reached.
Json decode_ratios(const DecodeFigures& figures);

Table decode_table(const DecodeFigures& figures);
Table decode_ratio_table(const Json& ratios);

/// Decoded tokens a second by context. The slower of llama.cpp's two settings is dashed.
Chart decode_chart(const DecodeFigures& figures);

}  // namespace quest::cli
