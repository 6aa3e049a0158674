// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
// What quest-gpu-check makes of the project's targets, from made-up rows.
#include "gpu_check/targets.h"

#include <gtest/gtest.h>

#include "gpu_check/made_up_rows.h"

namespace quest::testing {
namespace {

using cli::Json;

Json row_of_32_heads(const char* engine, std::int64_t context, std::int64_t budget,
                     std::int64_t batch, double speedup, double share) {
  Json row = our_row(engine, context, budget, 1e-5, speedup * 1e-5, batch);
  row["kv_heads"] = 32;
  row["bandwidth_share"] = share;
  return row;
}

TEST(GpuTargets, TheWorstRowOfTheShapeDecides) {
  const Json targets =
      gpu_check::judge_targets(Json::array({row_of_32_heads("dense", 32768, 32768, 1, 1, 0.2),
                                            row_of_32_heads("dense", 32768, 32768, 8, 1, 0.9),
                                            row_of_32_heads("dense", 32768, 32768, 64, 1, 0.84),
                                            row_of_32_heads("dense", 8192, 8192, 8, 1, 0.1),
                                            row_of_32_heads("quest", 32768, 2048, 1, 7.5, 0.5),
                                            row_of_32_heads("quest", 32768, 512, 1, 3, 0.5),
                                            row_of_32_heads("quest", 32768, 2048, 8, 2, 0.5)}));
  ASSERT_EQ(targets.size(), 3U);
  EXPECT_DOUBLE_EQ(targets[0]["got"].get<double>(), 7.5);
  EXPECT_EQ(targets[0]["met"], true);
  // Of 16.5 us score and select take 8.
  EXPECT_DOUBLE_EQ(targets[1]["got"].get<double>(), 8 / 16.5);
  EXPECT_EQ(targets[1]["met"], false);
  EXPECT_DOUBLE_EQ(targets[2]["got"].get<double>(), 0.84);
  EXPECT_EQ(targets[2]["met"], false);
}

TEST(GpuTargets, WhatWasNotMeasuredIsNeitherMetNorMissed) {
  for (const Json& target : gpu_check::judge_targets(our_rows())) {  // 8 KV heads
    EXPECT_TRUE(target["got"].is_null()) << target;
    EXPECT_TRUE(target["met"].is_null()) << target;
  }
}

}  // namespace
}  // namespace quest::testing
