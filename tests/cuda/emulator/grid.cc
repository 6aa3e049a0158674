// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "cuda/emulator/grid.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <exception>
#include <memory>
#include <new>
#include <sstream>
#include <utility>
#include <vector>

#include "cuda/emulator/fiber.h"
#include "quest/error.h"

namespace quest::emulator {

namespace {

constexpr unsigned kWarpSize = 32;
constexpr std::size_t kCopyBytes = 16;

/// Thrown through the threads of a block that has failed, to unwind their stacks.
struct Abandoned {};

bool same_place(const Place& a, const Place& b) {
  return a.line == b.line && std::strcmp(a.file, b.file) == 0;
}

std::string describe(const Place& where) {
  std::ostringstream text;
  text << "line " << where.line << " of " << where.file;
  return text.str();
}

enum class State { kReady, kAtBarrier, kAtCollective, kReturned };

struct Copy {
  void* to;
  const void* from;
};

struct Thread {
  Fiber fiber;
  State state = State::kReady;
  Index3 index;
  std::vector<Copy> open_batch;
  std::deque<std::vector<Copy>> batches;
};

struct Warp {
  std::uint32_t arrived = 0;
  std::uint32_t mask = 0;
  Place where;
  unsigned round = 0;
  /// Of this round and the one before, which slower lanes may still read.
  Gift gifts[2][kWarpSize];
};

/// Memory that is as large as asked for, to the byte, so that AddressSanitizer sees what lies
/// beyond.
struct Storage {
  Storage(const void* its_name, std::size_t its_bytes, std::size_t alignment)
      : name(its_name),
        bytes(its_bytes),
        data(static_cast<unsigned char*>(::operator new (its_bytes, std::align_val_t{alignment})),
             Free{alignment}) {
    poison();
  }
  void poison() const { std::memset(data.get(), kPoison, bytes); }

  struct Free {
    std::size_t alignment;
    void operator()(unsigned char* p) const { ::operator delete (p, std::align_val_t{alignment}); }
  };
  const void* name;
  std::size_t bytes;
  std::unique_ptr<unsigned char, Free> data;
};

/// One block at a time of one grid.
class Block {
 public:
  Block(const Launch& launch, const std::function<void()>& body)
      : launch_(launch),
        body_(body),
        dynamic_(nullptr, launch.dynamic_shared == 0 ? 1 : launch.dynamic_shared, 128),
        threads_(std::size_t{launch.block.x} * launch.block.y * launch.block.z),
        warps_((threads_.size() + kWarpSize - 1) / kWarpSize) {}

  void run(const Index3& index, std::vector<std::unique_ptr<Thread>>& pool);

  bool barrier(bool predicate, const Place& where);
  const Gift* exchange(std::uint32_t mask, const Gift& gift, const Place& where);
  void* shared(const void* name, std::size_t bytes, std::size_t alignment);
  void* dynamic_shared() const { return dynamic_.data.get(); }

  const Launch& launch() const { return launch_; }
  const Index3& index() const { return index_; }
  Thread& thread() const { return *threads_[current_]; }
  unsigned lane() const { return static_cast<unsigned>(current_ % kWarpSize); }

 private:
  void begin(const Index3& index, std::vector<std::unique_ptr<Thread>>& pool);
  bool run_ready_threads();
  void release_barrier();
  void wait(State state);
  [[noreturn]] void fail(const std::string& fault);
  std::string fault(const std::string& what) const;

  const Launch& launch_;
  const std::function<void()>& body_;
  Index3 index_;
  Storage dynamic_;
  std::vector<Storage> shared_;
  std::vector<Thread*> threads_;
  std::vector<Warp> warps_;
  std::size_t current_ = 0;

  Place barrier_place_;
  std::size_t at_barrier_ = 0;
  bool barrier_or_[2] = {};  ///< of this phase and the one before
  unsigned phase_ = 0;
  bool backwards_ = false;
  std::exception_ptr error_;
};

thread_local Block* running = nullptr;

void Block::begin(const Index3& index, std::vector<std::unique_ptr<Thread>>& pool) {
  index_ = index;
  dynamic_.poison();
  for (const Storage& storage : shared_) storage.poison();
  for (Warp& warp : warps_) warp = {};
  at_barrier_ = 0;
  barrier_or_[0] = barrier_or_[1] = false;
  while (pool.size() < threads_.size()) pool.push_back(std::make_unique<Thread>());
  const Index3& size = launch_.block;
  for (unsigned i = 0; i < threads_.size(); ++i) {
    Thread& thread = *pool[i];
    threads_[i] = &thread;
    thread.state = State::kReady;
    thread.open_batch.clear();
    thread.batches.clear();
    thread.index = {i % size.x, i / size.x % size.y, i / size.x / size.y};
    thread.fiber.start([this] {
      try {
        body_();
      } catch (const Abandoned&) {
        // The error is noted already.
      } catch (...) {
        if (!error_) error_ = std::current_exception();
      }
    });
  }
}

/// One turn of every thread that can go on; false if there was none. The turns alternate in
/// direction, so that whoever misses a barrier finds its neighbours late as often as early.
bool Block::run_ready_threads() {
  bool any = false;
  backwards_ = !backwards_;
  for (std::size_t i = 0; i < threads_.size(); ++i) {
    current_ = backwards_ ? threads_.size() - 1 - i : i;
    Thread& thread = *threads_[current_];
    if (thread.state != State::kReady && !(error_ && thread.state != State::kReturned)) continue;
    any = true;
    thread.fiber.resume();
    if (thread.fiber.ended()) thread.state = State::kReturned;
  }
  return any;
}

std::string Block::fault(const std::string& what) const {
  std::ostringstream text;
  text << "kernel '" << launch_.kernel << "', block (" << index_.x << ", " << index_.y << ", "
       << index_.z << "): " << what;
  return text.str();
}

void Block::fail(const std::string& what) {
  if (!error_) {
    std::ostringstream text;
    text << what << " (thread " << current_ << ')';
    error_ = std::make_exception_ptr(Error(fault(text.str())));
  }
  throw Abandoned{};
}

void Block::release_barrier() {
  at_barrier_ = 0;
  ++phase_;
  barrier_or_[phase_ % 2] = false;
  for (Thread* thread : threads_) {
    if (thread->state == State::kAtBarrier) thread->state = State::kReady;
  }
}

void Block::run(const Index3& index, std::vector<std::unique_ptr<Thread>>& pool) {
  begin(index, pool);
  while (run_ready_threads()) {
    std::size_t live = 0;
    bool ready = false;
    for (const Thread* thread : threads_) {
      if (thread->state != State::kReturned) ++live;
      if (thread->state == State::kReady) ready = true;
    }
    if (live == 0) break;
    if (ready || error_) continue;
    if (at_barrier_ == live) {
      release_barrier();
      continue;
    }
    std::ostringstream text;
    text << at_barrier_ << " of " << live << " live threads wait at a block barrier";
    if (at_barrier_ > 0) text << " (" << describe(barrier_place_) << ')';
    for (const Warp& warp : warps_) {
      if (warp.arrived == 0) continue;
      text << ", lanes " << std::hex << warp.arrived << " of " << warp.mask << std::dec
           << " at a warp collective (" << describe(warp.where) << ')';
    }
    text << "; the others never come";
    error_ = std::make_exception_ptr(Error(fault(text.str())));
  }
  if (!error_) return;
  const std::exception_ptr error = std::exchange(error_, nullptr);
  std::rethrow_exception(error);
}

void Block::wait(State state) {
  Thread& thread = *threads_[current_];
  thread.state = state;
  thread.fiber.pause();
  if (error_) throw Abandoned{};
}

bool Block::barrier(bool predicate, const Place& where) {
  if (at_barrier_ == 0) {
    barrier_place_ = where;
  } else if (!same_place(barrier_place_, where)) {
    fail("block barriers in two places: " + describe(barrier_place_) + " and " + describe(where));
  }
  const unsigned phase = phase_;
  if (predicate) barrier_or_[phase % 2] = true;
  ++at_barrier_;
  wait(State::kAtBarrier);
  return barrier_or_[phase % 2];
}

const Gift* Block::exchange(std::uint32_t mask, const Gift& gift, const Place& where) {
  Warp& warp = warps_[current_ / kWarpSize];
  const std::uint32_t me = std::uint32_t{1} << lane();
  if ((mask & me) == 0) fail("a lane is not in its own mask at " + describe(where));
  if (warp.arrived == 0) {
    warp.mask = mask;
    warp.where = where;
  } else if (warp.mask != mask || !same_place(warp.where, where)) {
    fail("lanes of one warp in two collectives: " + describe(warp.where) + " and " +
         describe(where));
  }
  const unsigned round = warp.round;
  warp.gifts[round % 2][lane()] = gift;
  warp.arrived |= me;
  if (warp.arrived != warp.mask) {
    wait(State::kAtCollective);
  } else {
    warp.arrived = 0;
    ++warp.round;
    const std::size_t first = current_ / kWarpSize * kWarpSize;
    for (std::size_t i = first; i < std::min(first + kWarpSize, threads_.size()); ++i) {
      if ((mask >> (i - first) & 1) != 0) threads_[i]->state = State::kReady;
    }
  }
  return warp.gifts[round % 2];
}

void* Block::shared(const void* name, std::size_t bytes, std::size_t alignment) {
  for (const Storage& storage : shared_) {
    if (storage.name == name) return storage.data.get();
  }
  shared_.emplace_back(name, bytes, alignment);
  return shared_.back().data.get();
}

}  // namespace

void run(const Launch& launch, const std::function<void()>& body) {
  // Stacks are kept from launch to launch.
  thread_local std::vector<std::unique_ptr<Thread>> pool;
  Block block(launch, body);
  running = &block;
  struct Reset {
    ~Reset() { running = nullptr; }
  } const reset;
  thread_local bool backwards = false;
  backwards = !backwards;
  const Index3& grid = launch.grid;
  const unsigned blocks = grid.x * grid.y * grid.z;
  for (unsigned i = 0; i < blocks; ++i) {
    const unsigned b = backwards ? blocks - 1 - i : i;
    block.run({b % grid.x, b / grid.x % grid.y, b / grid.x / grid.y}, pool);
  }
}

Index3 thread_index() { return running->thread().index; }
Index3 block_index() { return running->index(); }
Index3 block_size() { return running->launch().block; }
Index3 grid_size() { return running->launch().grid; }
unsigned lane_index() { return running->lane(); }

bool block_barrier(bool predicate, const Place& where) {
  return running->barrier(predicate, where);
}

const Gift* exchange(std::uint32_t mask, const Gift& gift, const Place& where) {
  return running->exchange(mask, gift, where);
}

void start_copy(void* shared, const void* global) {
  std::memset(shared, kPoison, kCopyBytes);
  running->thread().open_batch.push_back({shared, global});
}

void commit_copies() {
  Thread& thread = running->thread();
  thread.batches.push_back(std::exchange(thread.open_batch, {}));
}

void wait_for_copies(std::size_t batches) {
  std::deque<std::vector<Copy>>& waiting = running->thread().batches;
  for (; waiting.size() > batches; waiting.pop_front()) {
    for (const Copy& copy : waiting.front()) std::memcpy(copy.to, copy.from, kCopyBytes);
  }
}

void* shared_memory(const void* name, std::size_t bytes, std::size_t alignment) {
  return running->shared(name, bytes, alignment);
}

void* dynamic_shared_memory() { return running->dynamic_shared(); }

}  // namespace quest::emulator
