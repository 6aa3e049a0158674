// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <functional>
#include <string>

// What the check needs of the CUDA runtime beyond the backend's own device.
namespace quest::gpu_check {

/// Throws Error naming what was tried.
void require(cudaError_t error, const char* what);

/// Launches of one stream, captured once and replayed at will.
class Graph {
 public:
  /// Captures what `launches` puts on the stream; nothing runs yet.
  Graph(cudaStream_t stream, const std::function<void()>& launches);
  ~Graph();
  Graph(const Graph&) = delete;

  void replay();
  /// Seconds of one replay, the mean over `repeats` after a few for warming up.
  double seconds(int repeats);

 private:
  cudaStream_t stream_;
  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t executable_ = nullptr;
};

/// Bytes a second that a copy within the device reads and writes together.
double copy_bandwidth(cudaStream_t stream);

/// Fills device memory with 16-bit floats between -1 and 1, f16 or bf16 alike: a random mebibyte
/// over and over.
void fill_random(cudaStream_t stream, std::uint16_t* memory, std::int64_t elements);

std::int64_t free_memory();
std::string device_name(int device);
std::string driver_version();

}  // namespace quest::gpu_check
