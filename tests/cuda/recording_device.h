// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "attention/cuda/device.h"
#include "quest/error.h"

namespace quest::test {

/// Passes everything on and notes what a CUDA graph would capture.
class RecordingDevice : public cuda::Device {
 public:
  struct Launch {
    cuda::Kernel kernel;
    cuda::LayerArgs args;
    std::int64_t blocks;
  };

  explicit RecordingDevice(std::unique_ptr<cuda::Device> device) : device_(std::move(device)) {}

  std::vector<Launch> launches;
  int fails_in = -1;                ///< launches from now; -1: none fails
  int copies = 0;                   ///< to and from the host
  std::int64_t uploaded_bytes = 0;  ///< to the device

  /// Runs recorded launches again.
  void replay(const std::vector<Launch>& recorded) {
    for (const Launch& launch : recorded)
      device_->launch(launch.kernel, launch.args, launch.blocks);
  }

  std::string name() const override { return device_->name(); }
  int multiprocessors() const override { return device_->multiprocessors(); }
  int resident_blocks(cuda::Kernel kernel, const cuda::LayerArgs& args) override {
    return device_->resident_blocks(kernel, args);
  }
  std::int64_t free_memory() override { return device_->free_memory(); }
  void* allocate(std::int64_t bytes) override { return device_->allocate(bytes); }
  void release(void* memory) noexcept override { device_->release(memory); }
  void upload(void* to, const void* from, std::int64_t bytes) override {
    ++copies;
    uploaded_bytes += bytes;
    device_->upload(to, from, bytes);
  }
  void download(void* to, const void* from, std::int64_t bytes) override {
    ++copies;
    device_->download(to, from, bytes);
  }
  void synchronise() override { device_->synchronise(); }
  void launch(cuda::Kernel kernel, const cuda::LayerArgs& args, std::int64_t blocks) override {
    launches.push_back({kernel, args, blocks});
    if (fails_in-- == 0)
      throw Error("CUDA: " + cuda::describe_launch(kernel, args, blocks) + " failed");
    device_->launch(kernel, args, blocks);
  }
  void mark(std::size_t event) override { device_->mark(event); }
  double seconds_between(std::size_t first, std::size_t second) override {
    return device_->seconds_between(first, second);
  }

 private:
  std::unique_ptr<cuda::Device> device_;
};

}  // namespace quest::test
