// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

// A GPU's grid of threads on one host thread, for tests. Blocks run one after the other; the
// threads of a block are fibers that change places at barriers and warp collectives only. What
// hardware leaves undefined is made visible: shared memory starts as NaN, threads take turns in
// both directions, as do the blocks of one launch and the next, and a barrier or collective that
// not all threads reach is an error.
namespace quest::emulator {

struct Index3 {
  unsigned x = 1;
  unsigned y = 1;
  unsigned z = 1;
};

struct Launch {
  std::string kernel;  ///< name, for errors
  Index3 grid;
  Index3 block;
  std::size_t dynamic_shared = 0;  ///< bytes
};

/// A line of the source. As a default argument, `Place::here()` is where the function is called.
struct Place {
  const char* file = "";
  int line = 0;

  static Place here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return {file, line};
  }
};

/// Runs `body` once a thread of the grid. Throws Error naming kernel and block if threads of a
/// block wait for each other in vain; what `body` throws passes through.
void run(const Launch& launch, const std::function<void()>& body);

/// Byte that shared memory is filled with before each block: NaN in every floating-point type.
inline constexpr unsigned char kPoison = 0xFF;

// What follows may be called by a thread of a running grid only.

Index3 thread_index();
Index3 block_index();
Index3 block_size();
Index3 grid_size();

/// Waits for all threads of the block that have not returned; whether any of them gave true.
/// Threads that wait in different places of the kernel are an error.
bool block_barrier(bool predicate, const Place& where);

/// What one lane gives to a warp collective.
using Gift = std::array<std::uint64_t, 6>;

/// Waits for the lanes of `mask`, this one among them; what they gave, by lane, valid until this
/// lane's next collective. One collective a warp at a time: lanes that come with another mask or in
/// another place are an error.
const Gift* exchange(std::uint32_t mask, const Gift& gift, const Place& where);
unsigned lane_index();

/// Starts a copy of 16 bytes to shared memory, which holds garbage until it is waited for.
void start_copy(void* shared, const void* global);
/// Ends a batch of this thread's copies.
void commit_copies();
/// Completes batches of this thread, the oldest first, until at most so many are left.
void wait_for_copies(std::size_t batches);

/// Storage that all threads of the block share, named by the address of something static.
void* shared_memory(const void* name, std::size_t bytes, std::size_t alignment);
/// The block's dynamic shared memory.
void* dynamic_shared_memory();

}  // namespace quest::emulator
