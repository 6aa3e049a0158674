// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <cstdint>
#include <string>
#include <vector>

#include "attention/cpu/amx.h"
#include "attention/cpu/kernel_getters.h"
#include "attention/cpu/kernels.h"

namespace quest::test {

/// An instruction set to force: Highway's, with or without tile products.
struct Target {
  std::int64_t bits = 0;
  bool tiles = false;
};

/// All that this machine has, the baseline included.
inline std::vector<Target> runnable_targets() {
  std::vector<Target> targets;
  for (const std::int64_t bits : cpu::runnable_targets()) targets.push_back({bits, false});
  if (cpu::prefill_amx_kernel(KvType::kF16) != nullptr) {
    targets.insert(targets.begin(), {targets.front().bits, true});
  }
  return targets;
}

/// Runs the body once for each instruction set.
class EveryTarget : public testing::TestWithParam<Target> {
 protected:
  void SetUp() override {
    hwy::SetSupportedTargetsForTest(GetParam().bits);
    cpu::allow_amx(GetParam().tiles);
    ASSERT_EQ(cpu::prefill_amx_kernel(KvType::kF16) != nullptr, GetParam().tiles);
  }
  void TearDown() override {
    hwy::SetSupportedTargetsForTest(0);
    cpu::allow_amx(true);
  }
};

inline std::string target_name(const testing::TestParamInfo<Target>& target) {
  return std::string(hwy::TargetName(target.param.bits)) + (target.param.tiles ? "_AMX" : "");
}

}  // namespace quest::test
