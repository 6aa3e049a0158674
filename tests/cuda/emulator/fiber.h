// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <boost/context/fiber.hpp>
#include <cstddef>
#include <functional>
#include <memory>

namespace quest::emulator {

/// A function on a stack of its own, which it leaves by `pause` and takes up again by `resume`. The
/// stack is kept for the next `start`. AddressSanitizer is told of every change of stacks.
class Fiber {
 public:
  Fiber();
  Fiber(const Fiber&) = delete;

  /// Readies `body`; the one before must have ended. `body` must not throw.
  void start(std::function<void()> body);
  /// Runs until the body pauses or ends.
  void resume();
  /// Called by the body: back to whoever resumed.
  void pause();
  bool ended() const { return ended_; }

 private:
  std::unique_ptr<std::byte[]> stack_;
  boost::context::fiber inside_;   ///< where the body paused
  boost::context::fiber outside_;  ///< where `resume` was called
  std::function<void()> body_;
  bool ended_ = true;
  // AddressSanitizer's notes on the resumer's stack.
  const void* outside_bottom_ = nullptr;
  std::size_t outside_size_ = 0;
};

}  // namespace quest::emulator
