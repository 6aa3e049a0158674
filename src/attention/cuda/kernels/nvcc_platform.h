// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_fp16.h>

// What the kernels need beyond CUDA itself. The tests have a counterpart of this file for the host
// compiler; a translation unit includes one of the two before any kernel.

#define QUEST_UNROLL _Pragma("unroll")
/// `name` is an object of `Type` that all threads of the block share, uninitialised.
#define QUEST_SHARED(Type, name) __shared__ Type name
/// The same in dynamic shared memory, of which a kernel has one.
#define QUEST_DYNAMIC_SHARED(Type, name)                                 \
  extern __shared__ __align__(128) unsigned char quest_dynamic_shared[]; \
  Type& name = *reinterpret_cast<Type*>(quest_dynamic_shared)

namespace quest::cuda {

/// Copies 16 bytes to shared memory in the background; done after `wait_for_copies`.
__device__ inline void copy_16_bytes(void* shared, const void* global) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  const auto address = static_cast<unsigned>(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address), "l"(global) : "memory");
#else
  *static_cast<uint4*>(shared) = *static_cast<const uint4*>(global);
#endif
}
/// Ends a batch of copies.
__device__ inline void commit_copies() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
/// Waits until at most `batches` of this thread's batches are under way.
template <int batches>
__device__ void wait_for_copies() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" ::"n"(batches) : "memory");
#endif
}

}  // namespace quest::cuda
