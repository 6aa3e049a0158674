// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "attention/cuda/cuda_backend.h"
#include "attention/cuda/cuda_device.h"
#include "quest/cuda.h"
#include "quest/error.h"

// QUEST_WITH_CUDA: the build compiles cuda_device.cu.

namespace quest {

#if defined(QUEST_WITH_CUDA)

bool built_with_cuda() { return true; }

void require_cuda() {
  if (cuda::device_count() == 0) throw Error(cuda::kNoDevice);
}

std::unique_ptr<AttentionBackend> make_cuda_backend(KvCache& cache, SelectionPolicy policy,
                                                    int device) {
  return cuda::make_backend(cache, std::move(policy), cuda::open_device(device));
}

#else

bool built_with_cuda() { return false; }

void require_cuda() {
  throw Error(
      "CUDA: this program was built without GPU support; configure it with -DQUEST_CUDA=ON, or use "
      "the CPU");
}

std::unique_ptr<AttentionBackend> make_cuda_backend(KvCache& /*cache*/, SelectionPolicy /*policy*/,
                                                    int /*device*/) {
  require_cuda();
  return nullptr;
}

#endif

}  // namespace quest
