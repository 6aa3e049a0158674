// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_fp16.h>

#include <cstdint>

// What the kernels need beyond CUDA itself. The tests have a counterpart of this file for the host
// compiler; a translation unit includes one of the two before any kernel.

#define QUEST_UNROLL _Pragma("unroll")
/// Before a loop: unrolls it by so much and no more.
#define QUEST_UNROLL_BY(count) QUEST_PRAGMA(unroll count)
#define QUEST_PRAGMA(text) _Pragma(#text)
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

/// sums[16, 8] += a[16, 16] · b[16, 8] of a warp on tensor cores, elements f16 or bf16; fragments
/// as the PTX ISA lays them out for mma.m16n8k16.
template <bool bf16>
__device__ inline void multiply_add(float (&sums)[4], const std::uint32_t (&a)[4],
                                    std::uint32_t b_low, std::uint32_t b_high) {
  if constexpr (bf16) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b_low), "r"(b_high));
  } else {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b_low), "r"(b_high));
  }
}

/// Four matrices of 8 rows of 8 elements from shared memory. Lane l gives the address of row l % 8
/// of matrix l / 8, 16 bytes, and gets elements 2 · (l % 4) and the next of row l / 4 of each.
__device__ inline void load_matrices(std::uint32_t (&words)[4], const void* row) {
  const auto address = static_cast<unsigned>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "r"(address)
               : "memory");
}

/// The same, but lane l gets rows 2 · (l % 4) and the next of column l / 4.
__device__ inline void load_transposed_matrices(std::uint32_t (&words)[4], const void* row) {
  const auto address = static_cast<unsigned>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "r"(address)
               : "memory");
}

/// Two numbers in one word, the first in the low half, each rounded to nearest.
__device__ inline std::uint32_t pack_f16(float low, float high) {
  std::uint32_t word;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
  return word;
}
__device__ inline std::uint32_t pack_bf16(float low, float high) {
  std::uint32_t word;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
  return word;
}

}  // namespace quest::cuda
