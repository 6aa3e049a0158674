// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "attention/cuda/device.h"

#include <sstream>

#include "quest/error.h"

namespace quest::cuda {

namespace {

/// Oldest architecture that the kernels are written for: 8.0.
constexpr int kLeastMajor = 8;

}  // namespace

std::string describe_launch(Kernel kernel, const LayerArgs& args, std::int64_t blocks) {
  std::ostringstream text;
  text << "kernel " << name_of(kernel) << " on " << blocks << " blocks (layer " << args.layer
       << ", head_dim " << args.shape.head_dim << ", page_size " << args.shape.page_size()
       << ", KV heads " << args.shape.num_kv_heads << ", group " << args.group << ')';
  return text.str();
}

void require_served(const GpuFacts& gpu) {
  std::ostringstream text;
  text << "CUDA: " << gpu.name << " is of architecture " << gpu.major << '.' << gpu.minor << "; ";
  if (gpu.major < kLeastMajor) {
    text << "the kernels need 8.0 or newer: use the CPU";
    throw Error(text.str());
  }
  if (!gpu.has_kernels) {
    text << "this program holds no kernels for it: build it with CMAKE_CUDA_ARCHITECTURES="
         << gpu.major << gpu.minor << ", or use the CPU";
    throw Error(text.str());
  }
}

}  // namespace quest::cuda
