// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "gpu_check/gpu.h"

#include <algorithm>
#include <random>
#include <vector>

#include "quest/error.h"

namespace quest::gpu_check {

namespace {

/// Seconds between two points of a stream.
class Stopwatch {
 public:
  explicit Stopwatch(cudaStream_t stream) : stream_(stream) {
    require(cudaEventCreate(&begin_), "cannot make an event");
    require(cudaEventCreate(&end_), "cannot make an event");
    require(cudaEventRecord(begin_, stream_), "cannot record an event");
  }
  ~Stopwatch() {
    cudaEventDestroy(begin_);
    cudaEventDestroy(end_);
  }
  Stopwatch(const Stopwatch&) = delete;

  double stop() {
    require(cudaEventRecord(end_, stream_), "cannot record an event");
    require(cudaEventSynchronize(end_), "a kernel failed");
    float milliseconds = 0;
    require(cudaEventElapsedTime(&milliseconds, begin_, end_), "cannot read an event");
    return milliseconds * 1e-3;
  }

 private:
  cudaStream_t stream_;
  cudaEvent_t begin_ = nullptr;
  cudaEvent_t end_ = nullptr;
};

}  // namespace

void require(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  throw Error("CUDA: " + std::string(what) + ": " + cudaGetErrorString(error));
}

Graph::Graph(cudaStream_t stream, const std::function<void()>& launches) : stream_(stream) {
  require(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cannot capture");
  launches();
  require(cudaStreamEndCapture(stream, &graph_), "the launches cannot be captured");
  require(cudaGraphInstantiate(&executable_, graph_, 0), "cannot instantiate the graph");
}

Graph::~Graph() {
  cudaGraphExecDestroy(executable_);
  cudaGraphDestroy(graph_);
}

void Graph::replay() { require(cudaGraphLaunch(executable_, stream_), "cannot replay the graph"); }

double Graph::seconds(int repeats) {
  for (int i = 0; i < 3; ++i) replay();
  Stopwatch watch(stream_);
  for (int i = 0; i < repeats; ++i) replay();
  return watch.stop() / repeats;
}

double copy_bandwidth(cudaStream_t stream) {
  const std::int64_t bytes = std::min<std::int64_t>(std::int64_t{1} << 30, free_memory() / 4);
  void* from = nullptr;
  void* to = nullptr;
  require(cudaMalloc(&from, static_cast<std::size_t>(bytes)), "cannot allocate");
  require(cudaMalloc(&to, static_cast<std::size_t>(bytes)), "cannot allocate");
  double best = 0;
  for (int i = 0; i < 8; ++i) {
    Stopwatch watch(stream);
    require(cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), cudaMemcpyDeviceToDevice,
                            stream),
            "cannot copy");
    best = std::max(best, 2.0 * static_cast<double>(bytes) / watch.stop());
  }
  cudaFree(from);
  cudaFree(to);
  return best;
}

void fill_random(cudaStream_t stream, std::uint16_t* memory, std::int64_t elements) {
  std::mt19937 random(1);
  std::vector<std::uint16_t> pattern(
      static_cast<std::size_t>(std::min<std::int64_t>(elements, 1 << 19)));
  // Exponents below that of one in either type, any sign and mantissa.
  for (std::uint16_t& x : pattern) {
    x = static_cast<std::uint16_t>((random() & 0x8000U) | (0x3000U + random() % 0x0A00U));
  }
  const auto size = static_cast<std::int64_t>(pattern.size());
  require(
      cudaMemcpyAsync(memory, pattern.data(), pattern.size() * 2, cudaMemcpyHostToDevice, stream),
      "cannot copy to the device");
  for (std::int64_t done = size; done < elements;) {
    const std::int64_t count = std::min(done, elements - done);
    require(cudaMemcpyAsync(memory + done, memory, static_cast<std::size_t>(count) * 2,
                            cudaMemcpyDeviceToDevice, stream),
            "cannot copy");
    done += count;
  }
  require(cudaStreamSynchronize(stream), "cannot fill the memory");
}

std::int64_t free_memory() {
  std::size_t free = 0;
  std::size_t total = 0;
  require(cudaMemGetInfo(&free, &total), "cannot ask for the free memory");
  return static_cast<std::int64_t>(free);
}

std::string device_name(int device) {
  cudaDeviceProp properties{};
  require(cudaGetDeviceProperties(&properties, device), "cannot read the device's properties");
  return properties.name;
}

std::string driver_version() {
  int version = 0;
  require(cudaDriverGetVersion(&version), "cannot ask for the driver's version");
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

}  // namespace quest::gpu_check
