// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "attention/cuda/cuda_device.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <string>
#include <vector>

#include "attention/cuda/kernels/nvcc_platform.h"
// After the platform, which names what kernels use.
#include "attention/cuda/kernels/launch-inl.h"
#include "quest/error.h"

namespace quest::cuda {

namespace {

/// Shared memory that a block has without asking for more.
constexpr std::size_t kPlainShared = std::size_t{48} << 10;

[[noreturn]] void fail(const std::string& what, cudaError_t error) {
  throw Error("CUDA: " + what + ": " + cudaGetErrorString(error));
}

void check(cudaError_t error, const char* what) {
  if (error != cudaSuccess) fail(what, error);
}

class GpuDevice final : public Device {
 public:
  GpuDevice(int index, const cudaDeviceProp& properties)
      : index_(index),
        name_(properties.name),
        multiprocessors_(properties.multiProcessorCount) {
    use();
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cannot make a stream");
  }
  ~GpuDevice() override {
    for (cudaEvent_t event : events_) cudaEventDestroy(event);
    cudaStreamDestroy(stream_);
  }

  std::string name() const override { return name_; }
  int multiprocessors() const override { return multiprocessors_; }
  int resident_blocks(Kernel kernel, const LayerArgs& args) override {
    use();
    int blocks = 0;
    launch_kernel(kernel, args, [&](auto* function, int threads, std::size_t shared) {
      allow_shared(function, shared);
      check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function, threads, shared),
            "cannot ask for the occupancy");
    });
    return std::max(blocks, 1);
  }
  std::int64_t free_memory() override {
    use();
    std::size_t free = 0;
    std::size_t total = 0;
    check(cudaMemGetInfo(&free, &total), "cannot ask for the free memory");
    return static_cast<std::int64_t>(free);
  }

  void* allocate(std::int64_t bytes) override {
    use();
    void* memory = nullptr;
    const cudaError_t error = cudaMalloc(&memory, static_cast<std::size_t>(bytes));
    if (error == cudaSuccess) return memory;
    cudaGetLastError();  // an allocation that fails leaves the device usable
    fail(std::to_string(bytes) + " bytes of device memory wanted, " +
             std::to_string(free_memory()) + " free; use a smaller context",
         error);
  }
  void release(void* memory) noexcept override { cudaFree(memory); }

  void upload(void* to, const void* from, std::int64_t bytes) override {
    use();
    // From pageable memory: staged before the call returns.
    check(cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), cudaMemcpyHostToDevice,
                          stream_),
          "cannot copy to the device");
  }
  void download(void* to, const void* from, std::int64_t bytes) override {
    use();
    check(cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), cudaMemcpyDeviceToHost,
                          stream_),
          "cannot copy from the device");
    synchronise();
  }
  void synchronise() override {
    const cudaError_t error = cudaStreamSynchronize(stream_);
    if (error != cudaSuccess) fail("a kernel failed, the last was " + last_launch_, error);
  }

  void launch(Kernel kernel, const LayerArgs& args, std::int64_t blocks) override {
    use();
    launch_kernel(kernel, args, [&](auto* function, int threads, std::size_t shared) {
      allow_shared(function, shared);
      function<<<static_cast<unsigned>(blocks), static_cast<unsigned>(threads), shared,
                 stream_>>>(args);
    });
    const cudaError_t error = cudaGetLastError();
    if (error != cudaSuccess) fail(describe_launch(kernel, args, blocks) + " was not launched", error);
    last_launch_ = name_of(kernel);
#ifndef NDEBUG
    finish_debug_launch(kernel, args, blocks);
#endif
  }

  void mark(std::size_t event) override {
    use();
    while (events_.size() <= event) {
      cudaEvent_t created = nullptr;
      check(cudaEventCreate(&created), "cannot make an event");
      events_.push_back(created);
    }
    check(cudaEventRecord(events_[event], stream_), "cannot record an event");
  }
  double seconds_between(std::size_t first, std::size_t second) override {
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, events_[first], events_[second]),
          "cannot read an event");
    return milliseconds * 1e-3;
  }

  cudaStream_t stream() const { return stream_; }

 private:
  /// The current device is each host thread's own, and calls may come from any.
  void use() const { check(cudaSetDevice(index_), "cannot use the device"); }

  template <class Function>
  static void allow_shared(Function* function, std::size_t shared) {
    if (shared <= kPlainShared) return;
    check(cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(shared)),
          "too little shared memory");
  }

  /// In debug builds every kernel is waited for, so that a fault names its kernel; not while the
  /// stream is being captured, when nothing runs.
  [[maybe_unused]] void finish_debug_launch(Kernel kernel, const LayerArgs& args,
                                            std::int64_t blocks) {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    check(cudaStreamIsCapturing(stream_, &status), "cannot ask for the capture status");
    if (status != cudaStreamCaptureStatusNone) return;
    const cudaError_t error = cudaStreamSynchronize(stream_);
    if (error != cudaSuccess) fail(describe_launch(kernel, args, blocks) + " failed", error);
  }

  const int index_;
  const std::string name_;
  const int multiprocessors_;
  cudaStream_t stream_ = nullptr;
  std::vector<cudaEvent_t> events_;
  std::string last_launch_ = "none";
};

/// Whether the code of the program, which is the same for all kernels, suits the device.
bool has_kernels(int index) {
  check(cudaSetDevice(index), "cannot use the device");
  cudaFuncAttributes attributes{};
  const cudaError_t error = cudaFuncGetAttributes(&attributes, copy_page);
  if (error == cudaErrorNoKernelImageForDevice || error == cudaErrorInvalidDeviceFunction ||
      error == cudaErrorUnsupportedPtxVersion) {
    cudaGetLastError();
    return false;
  }
  check(error, "cannot look for kernels");
  return true;
}

}  // namespace

int device_count() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess) {
    cudaGetLastError();
    return 0;
  }
  return count;
}

std::unique_ptr<Device> open_device(int index) {
  const int count = device_count();
  if (count == 0) throw Error(kNoDevice);
  if (index < 0 || index >= count) {
    throw InvalidArgument("CUDA: no device " + std::to_string(index) + "; there are " +
                          std::to_string(count));
  }
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, index), "cannot read the device's properties");
  require_served({properties.name, properties.major, properties.minor, has_kernels(index)});
  return std::make_unique<GpuDevice>(index, properties);
}

void* stream_of(Device& device) { return static_cast<GpuDevice&>(device).stream(); }

}  // namespace quest::cuda
