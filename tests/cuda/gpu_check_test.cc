// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
// The correctness cases of quest-gpu-check where there is no GPU: on the CPU backend, and a few on
// the emulated device, so that a case that fails on a GPU says something about the GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "cuda/emulated_backend.h"
#include "cuda/recording_device.h"
#include "gpu_check/correctness.h"
#include "gpu_check/repeats.h"

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
  EXPECT_EQ(result.at("cases"), kQuick ? 9 : 76);
  EXPECT_EQ(result.at("failed"), 0) << result.at("rows").dump(2);
}

TEST(GpuCheck, ItsQuickCasesHoldOnTheEmulatedDevice) {
  const nlohmann::json result = gpu_check::check_correctness(make_emulated, true);
  EXPECT_EQ(result.at("cases"), 9);
  EXPECT_EQ(result.at("failed"), 0) << result.at("rows").dump(2);
}

TEST(GpuCheck, RepeatsAreEqualOnTheEmulatedDevice) {
  const auto device = emulator::make_device();
  const nlohmann::json result = gpu_check::check_repeats(*device, {3, 6200, 5, 2});
  EXPECT_EQ(result.at("compared"), 2);
  EXPECT_EQ(result.at("failed"), 0);
}

/// A device whose rows change between two runs.
TEST(GpuCheck, RepeatThatDiffersIsCounted) {
  class Changing final : public RecordingDevice {
   public:
    Changing() : RecordingDevice(emulator::make_device()) {}
    void launch(cuda::Kernel kernel, const cuda::LayerArgs& args, std::int64_t blocks) override {
      const bool later = std::count_if(launches.begin(), launches.end(), [](const auto& l) {
                           return l.kernel == cuda::Kernel::kAttend;
                         }) > 1;
      if (later) const_cast<float*>(args.q)[0] = 5;
      RecordingDevice::launch(kernel, args, blocks);
    }
  };
  Changing device;
  const nlohmann::json result = gpu_check::check_repeats(device, {2, 300, 4, 1});
  EXPECT_EQ(result.at("compared"), 3);
  EXPECT_EQ(result.at("failed"), 2);
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
