// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
// Between begin_step and end_step the CPU backend must not touch the heap.
#include <gtest/gtest.h>

#include <cstdlib>
#include <new>

#include "attention/cpu_harness.h"

// The sanitizers bring their own operators, and replacing them would blind them.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

namespace {

thread_local std::int64_t allocations = 0;

void* allocate(std::size_t bytes, std::size_t alignment) {
  ++allocations;
  const std::size_t whole = (bytes + alignment - 1) / alignment * alignment;
  void* const p = std::aligned_alloc(alignment, whole == 0 ? alignment : whole);
  if (p == nullptr) throw std::bad_alloc();
  return p;
}

}  // namespace

void* operator new(std::size_t bytes) { return allocate(bytes, alignof(std::max_align_t)); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return allocate(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }
void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete(void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }

namespace quest::test {
namespace {

/// Allocations while the layers of one step run.
std::int64_t allocations_of_a_step(const SelectionPolicy& policy, int threads) {
  const std::vector<Request> requests{
      {300, 1, true}, {80, 1, false}, {40, 21, false}, {200, 5, true}};
  const CacheShape shape{2, 2, 64, 16, KvType::kF16, pages_needed(requests, 16)};
  Side side(shape, 3, policy, make_cpu_backend, threads);
  Batch batch;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    side.add(requests[i], static_cast<std::uint32_t>(i));
    side.cache.reserve(side.sequences[i], requests[i].rows);
    add_request(batch, side.cache, side.sequences[i], requests[i].rows, requests[i].sparse);
  }
  side.backend->begin_step(batch, 6, threads);
  std::atomic<std::int64_t> during{0};
  for (std::int32_t layer = 0; layer < shape.num_layers; ++layer) {
    LayerData data(shape, 3, layer, batch.num_rows(), 5, Values::kUniform);
    run_team(threads, [&](Team& team, int thread) {
      const std::int64_t before = allocations;
      side.backend->forward(data.input, team, thread);
      during += allocations - before;
    });
  }
  side.backend->end_step();
  return during;
}

TEST(CpuBackendMemory, Forward_NeverAllocates) {
  for (const GroupMode mode : {GroupMode::kPerHead, GroupMode::kGroupMax, GroupMode::kGroupMean,
                               GroupMode::kGroupSoftmax, GroupMode::kQuota}) {
    for (const int threads : {1, 2, 5, 40}) {
      SelectionPolicy policy;
      policy.budget = 96;
      policy.dense_layers = 1;
      policy.group_mode = mode;
      EXPECT_EQ(allocations_of_a_step(policy, threads), 0)
          << name_of(mode) << ' ' << threads << " threads";
    }
  }
}

TEST(CpuBackendMemory, ForwardWithoutLightValues_NeverAllocates) {
  for (const GroupMode mode : {GroupMode::kPerHead, GroupMode::kGroupSoftmax}) {
    for (const int threads : {1, 2, 5, 40}) {
      SelectionPolicy policy;
      policy.budget = 96;
      policy.dense_layers = 1;
      policy.group_mode = mode;
      policy.value_threshold = 0.9F;
      EXPECT_EQ(allocations_of_a_step(policy, threads), 0)
          << name_of(mode) << ' ' << threads << " threads";
    }
  }
}

TEST(CpuBackendMemory, CertifiedForward_NeverAllocates) {
  for (const char* text : {"top-r=1", "top-r=1000", "mass=0.5", "mass=0.001"}) {
    for (const int threads : {1, 2, 5, 40}) {
      SelectionPolicy policy;
      policy.budget = 48;
      policy.dense_layers = 0;
      policy = policy.with_certificate(*parse_certificate(text));
      EXPECT_EQ(allocations_of_a_step(policy, threads), 0) << text << ' ' << threads << " threads";
    }
  }
}

}  // namespace
}  // namespace quest::test

#endif
