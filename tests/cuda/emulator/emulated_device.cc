// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "cuda/emulator/emulated_device.h"

#include <chrono>
#include <cstring>
#include <new>
#include <string>
#include <unordered_map>
#include <vector>

#include "cuda/emulator/grid.h"
#include "cuda/emulator/platform.h"
// After the platform, which names what kernels use.
#include "attention/cuda/kernels/launch-inl.h"
#include "quest/error.h"

namespace quest::emulator {

namespace {

class EmulatedDevice final : public cuda::Device {
 public:
  explicit EmulatedDevice(const DeviceOptions& options) : options_(options) {}

  std::string name() const override { return "emulator"; }
  int multiprocessors() const override { return options_.multiprocessors; }
  int resident_blocks(cuda::Kernel /*kernel*/, const cuda::LayerArgs& /*args*/) override {
    return options_.resident_blocks;
  }
  std::int64_t free_memory() override { return options_.memory - used_; }

  void* allocate(std::int64_t bytes) override {
    if (bytes > options_.memory - used_) {
      throw Error("CUDA: " + std::to_string(bytes) + " bytes of device memory wanted, " +
                  std::to_string(options_.memory - used_) + " free; use a smaller context");
    }
    used_ += bytes;
    const auto size = static_cast<std::size_t>(bytes);
    void* const memory = ::operator new(size, kAlignment);
    std::memset(memory, kPoison, size);
    sizes_[memory] = bytes;
    return memory;
  }
  void release(void* memory) noexcept override {
    used_ -= sizes_[memory];
    sizes_.erase(memory);
    ::operator delete(memory, kAlignment);
  }
  void upload(void* to, const void* from, std::int64_t bytes) override {
    std::memcpy(to, from, static_cast<std::size_t>(bytes));
  }
  void download(void* to, const void* from, std::int64_t bytes) override {
    std::memcpy(to, from, static_cast<std::size_t>(bytes));
  }
  void synchronise() override {}

  void launch(cuda::Kernel kernel, const cuda::LayerArgs& args, std::int64_t blocks) override {
    cuda::launch_kernel(kernel, args, [&](auto* function, int threads, std::size_t shared) {
      const Launch launch{cuda::name_of(kernel),
                          {static_cast<unsigned>(blocks), 1, 1},
                          {static_cast<unsigned>(threads), 1, 1},
                          shared};
      run(launch, [&] { function(args); });
    });
  }

  void mark(std::size_t event) override {
    if (marks_.size() <= event) marks_.resize(event + 1);
    marks_[event] = Clock::now();
  }
  double seconds_between(std::size_t first, std::size_t second) override {
    return std::chrono::duration<double>(marks_[second] - marks_[first]).count();
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::align_val_t kAlignment{256};

  const DeviceOptions options_;
  std::int64_t used_ = 0;
  std::unordered_map<void*, std::int64_t> sizes_;
  std::vector<Clock::time_point> marks_;
};

}  // namespace

std::unique_ptr<cuda::Device> make_device(const DeviceOptions& options) {
  return std::make_unique<EmulatedDevice>(options);
}

}  // namespace quest::emulator
