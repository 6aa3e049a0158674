// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
// The correctness cases of quest-gpu-check where there is no GPU: on the CPU backend, and a few on
// the emulated device, so that a case that fails on a GPU says something about the GPU.
#include <gtest/gtest.h>

#include <utility>

#include "cuda/emulated_backend.h"
#include "gpu_check/correctness.h"

namespace quest::test {
namespace {

// The reference takes minutes for all of them under a sanitizer.
#if defined(__SANITIZE_ADDRESS__)
constexpr bool kQuick = true;
#else
constexpr bool kQuick = false;
#endif

TEST(GpuCheck, ItsCasesHoldOnTheCpu) {
  const nlohmann::json result = gpu_check::check_correctness(make_cpu_backend, kQuick);
  EXPECT_EQ(result.at("cases"), kQuick ? 6 : 51);
  EXPECT_EQ(result.at("failed"), 0) << result.at("rows").dump(2);
}

TEST(GpuCheck, ItsQuickCasesHoldOnTheEmulatedDevice) {
  const nlohmann::json result = gpu_check::check_correctness(make_emulated, true);
  EXPECT_EQ(result.at("cases"), 6);
  EXPECT_EQ(result.at("failed"), 0) << result.at("rows").dump(2);
}

TEST(GpuCheck, AnotherPolicyFailsIt) {
  const nlohmann::json result = gpu_check::check_correctness(
      [](KvCache& cache, SelectionPolicy policy) {
        policy.beta = 1;
        return make_cpu_backend(cache, std::move(policy));
      },
      true);
  EXPECT_GT(result.at("failed"), 0);
}

}  // namespace
}  // namespace quest::test
