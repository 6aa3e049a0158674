// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ggml.h>

#include <bit>
#include <cfenv>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "cuda/emulator/grid.h"

// What the kernels need of CUDA, for the host compiler: the counterpart of
// src/attention/cuda/kernels/nvcc_platform.h. The names are CUDA's.
// NOLINTBEGIN(bugprone-reserved-identifier)

#define __global__
#define __device__
#define __launch_bounds__(threads)
#define QUEST_UNROLL
#define QUEST_UNROLL_BY(count)
/// `name` is an object of `Type` that all threads of the block share, uninitialised.
#define QUEST_SHARED(Type, name)    \
  static const char name##_key = 0; \
  auto& name = *static_cast<Type*>( \
      ::quest::emulator::shared_memory(&name##_key, sizeof(Type), alignof(Type)))
/// The same in dynamic shared memory, of which a kernel has one.
#define QUEST_DYNAMIC_SHARED(Type, name) \
  auto& name = *static_cast<Type*>(::quest::emulator::dynamic_shared_memory())

#define threadIdx (::quest::emulator::thread_index())
#define blockIdx (::quest::emulator::block_index())
#define blockDim (::quest::emulator::block_size())
#define gridDim (::quest::emulator::grid_size())

/// Kernels move elements of all types by sixteen bytes.
struct __attribute__((may_alias, aligned(16))) uint4 {
  unsigned x, y, z, w;
};

using quest::emulator::Place;

inline void __syncthreads(const Place& where = Place::here()) {
  quest::emulator::block_barrier(false, where);
}
inline int __syncthreads_or(int predicate, const Place& where = Place::here()) {
  return quest::emulator::block_barrier(predicate != 0, where) ? 1 : 0;
}
inline void __syncwarp(std::uint32_t mask = ~0U, const Place& where = Place::here()) {
  quest::emulator::exchange(mask, {}, where);
}

namespace quest::emulator {

template <class T>
std::uint64_t to_bits(T value) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= sizeof(std::uint64_t));
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  return bits;
}

template <class T>
T from_bits(std::uint64_t bits) {
  T value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

/// The value of lane `source`; of this lane where `source` is outside the warp or the mask.
template <class T>
T shuffle(std::uint32_t mask, T value, unsigned source, const Place& where) {
  const Gift* gifts = exchange(mask, {to_bits(value)}, where);
  if (source >= 32 || (mask >> source & 1) == 0) return value;
  return from_bits<T>(gifts[source][0]);
}

}  // namespace quest::emulator

template <class T>
T __shfl_sync(std::uint32_t mask, T value, int lane, const Place& where = Place::here()) {
  return quest::emulator::shuffle(mask, value, static_cast<unsigned>(lane) % 32, where);
}
template <class T>
T __shfl_xor_sync(std::uint32_t mask, T value, int lane_mask, const Place& where = Place::here()) {
  return quest::emulator::shuffle(
      mask, value, quest::emulator::lane_index() ^ static_cast<unsigned>(lane_mask), where);
}
template <class T>
T __shfl_up_sync(std::uint32_t mask, T value, unsigned delta, const Place& where = Place::here()) {
  return quest::emulator::shuffle(mask, value, quest::emulator::lane_index() - delta, where);
}
inline std::uint32_t __ballot_sync(std::uint32_t mask, int predicate,
                                   const Place& where = Place::here()) {
  const quest::emulator::Gift* gifts =
      quest::emulator::exchange(mask, {predicate != 0 ? 1U : 0U}, where);
  std::uint32_t votes = 0;
  for (unsigned lane = 0; lane < 32; ++lane) {
    if ((mask >> lane & 1) != 0 && gifts[lane][0] != 0) votes |= 1U << lane;
  }
  return votes;
}

// Threads change places at collectives only, so nothing comes between the halves of these.
template <class T, class V>
T atomicAdd(T* address, V value) {
  const T old = *address;
  *address = old + static_cast<T>(value);
  return old;
}
template <class T>
T atomicMin(T* address, std::type_identity_t<T> value) {
  const T old = *address;
  if (value < old) *address = value;
  return old;
}
template <class T>
T atomicMax(T* address, std::type_identity_t<T> value) {
  const T old = *address;
  if (value > old) *address = value;
  return old;
}

template <class T>
T atomicOr(T* address, std::type_identity_t<T> value) {
  const T old = *address;
  *address = old | value;
  return old;
}
/// Blocks run one after the other.
inline void __threadfence() {}

inline int __popc(std::uint32_t x) { return std::popcount(x); }
inline int __clz(int x) { return std::countl_zero(static_cast<std::uint32_t>(x)); }
inline std::uint32_t __float_as_uint(float x) { return std::bit_cast<std::uint32_t>(x); }
inline float __uint_as_float(std::uint32_t x) { return std::bit_cast<float>(x); }

struct __half {
  std::uint16_t bits;
};
inline __half __ushort_as_half(std::uint16_t bits) { return {bits}; }
inline std::uint16_t __half_as_ushort(__half x) { return x.bits; }
inline float __half2float(__half x) { return ggml_fp16_to_fp32(x.bits); }
inline __half __float2half_rn(float x) { return {ggml_fp32_to_fp16(x)}; }
/// Rounded towards plus infinity.
inline __half __float2half_ru(float x) {
  const std::uint16_t bits = ggml_fp32_to_fp16(x);
  if (!(ggml_fp16_to_fp32(bits) < x)) return {bits};
  if (bits == 0x8000) return {0x0001};
  return {static_cast<std::uint16_t>((bits & 0x8000) != 0 ? bits - 1 : bits + 1)};
}
/// a - b, rounded towards plus infinity.
inline float __fsub_ru(float a, float b) {
  const int mode = std::fegetround();
  std::fesetround(FE_UPWARD);
  // Volatile, so that the subtraction stays between the two changes of the mode.
  const volatile float minuend = a;
  const volatile float subtrahend = b;
  const volatile float difference = minuend - subtrahend;
  std::fesetround(mode);
  return difference;
}

namespace quest::cuda {

inline void copy_16_bytes(void* shared, const void* global) {
  emulator::start_copy(shared, global);
}
inline void commit_copies() { emulator::commit_copies(); }
template <int batches>
void wait_for_copies() {
  emulator::wait_for_copies(batches);
}

}  // namespace quest::cuda

// NOLINTEND(bugprone-reserved-identifier)

#include "cuda/emulator/matrices.h"
