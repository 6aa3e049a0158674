// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
// What the backend says when a device is not served, or fails.
#include "attention/cuda/device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "attention/grid_case.h"
#include "cuda/emulated_backend.h"
#include "cuda/recording_device.h"
#include "quest/error.h"

namespace quest::test {
namespace {

std::string refusal(const cuda::GpuFacts& gpu) {
  try {
    cuda::require_served(gpu);
  } catch (const Error& error) {
    return error.what();
  }
  return "served";
}

TEST(CudaDevice, ArchitectureThatIsNotServed_IsRefusedByName) {
  EXPECT_EQ(refusal({"Tesla V100", 7, 0, true}),
            "CUDA: Tesla V100 is of architecture 7.0; the kernels need 8.0 or newer: use the CPU");
  EXPECT_EQ(refusal({"Tesla V100", 7, 5, false}),
            "CUDA: Tesla V100 is of architecture 7.5; the kernels need 8.0 or newer: use the CPU");
  EXPECT_EQ(refusal({"Thor", 11, 0, false}),
            "CUDA: Thor is of architecture 11.0; this program holds no kernels for it: build it "
            "with CMAKE_CUDA_ARCHITECTURES=110, or use the CPU");
  for (const auto& [major, minor] : {std::pair{8, 0}, {8, 9}, {9, 0}, {12, 1}}) {
    EXPECT_EQ(refusal({"A GPU", major, minor, true}), "served");
  }
}

TEST(CudaDevice, Launch_IsDescribedByKernelAndShape) {
  cuda::LayerArgs args;
  args.shape = {4, 128, 5, 100, false, SummaryType::kQ8};
  args.layer = 7;
  args.group = 8;
  EXPECT_EQ(cuda::describe_launch(cuda::Kernel::kMergeSplits, args, 33),
            "kernel merge_splits on 33 blocks (layer 7, head_dim 128, page_size 32, KV heads 4, "
            "group 8)");
}

/// Every launch of a step, one after the other, fails as a GPU's would. The error names the kernel,
/// no thread is kept waiting, and the next step works.
TEST(CudaDevice, LaunchThatFails_EndsTheStepByName) {
  for (const GroupMode mode : {GroupMode::kGroupMean, GroupMode::kGroupSoftmax}) {
    bool failed = true;
    for (int launch = 0; failed; ++launch) {
      auto owned = std::make_unique<RecordingDevice>(emulator::make_device());
      RecordingDevice& device = *owned;
      KvCache cache({1, 2, 64, 8, KvType::kF16, 40});
      const auto backend = cuda::make_backend(cache, policy_of(mode, 40), std::move(owned));
      const SequenceId id = cache.create();
      const auto feed = [&](std::int32_t rows) {
        cache.reserve(id, rows);
        Batch batch;
        add_request(batch, cache, id, rows, true);
        LayerData data(cache.shape(), 2, 0, rows, 1, Values::kUniform);
        backend->begin_step(batch, 4, 2);
        run_team(2, [&](Team& team, int thread) { backend->forward(data.input, team, thread); });
        backend->end_step();
      };
      feed(104);
      device.fails_in = launch;
      try {
        feed(1);
        failed = false;
      } catch (const Error& error) {
        const std::string kernel = cuda::name_of(device.launches.back().kernel);
        EXPECT_THAT(error.what(), testing::HasSubstr("kernel " + kernel + " on "));
        EXPECT_THAT(error.what(), testing::HasSubstr("head_dim 64"));
      }
      device.fails_in = -1;
      if (failed) cache.truncate(id, 104);  // the token may not have been stored
      feed(1);
      // patch_tables for the new page, append_summarise, score, [combine,] select, plan, attend,
      // merge
      if (failed) continue;
      EXPECT_EQ(launch, mode == GroupMode::kGroupSoftmax ? 8 : 7);
    }
  }
}

/// A page is copied between two steps, where nobody waits for an error.
TEST(CudaDevice, CopyThatFails_IsThrownByEveryStepAfterIt) {
  auto owned = std::make_unique<RecordingDevice>(emulator::make_device());
  RecordingDevice& device = *owned;
  KvCache cache({1, 1, 64, 8, KvType::kF16, 10});
  const auto backend =
      cuda::make_backend(cache, policy_of(GroupMode::kGroupMean, 40), std::move(owned));
  const SequenceId parent = cache.create();
  const auto begin = [&](SequenceId id) {
    cache.reserve(id, 1);
    Batch batch;
    add_request(batch, cache, id, 1, true);
    backend->begin_step(batch, 1, 1);
  };
  begin(parent);
  const SequenceId branch = cache.fork(parent);
  device.fails_in = 0;
  // The page stays uncopied, so no step after it may pass.
  for (int attempt = 0; attempt < 2; ++attempt) {
    try {
      begin(branch);
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr("kernel copy_page on 1 blocks"));
    }
  }
}

}  // namespace
}  // namespace quest::test
