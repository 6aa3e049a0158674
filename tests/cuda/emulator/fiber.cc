// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "cuda/emulator/fiber.h"

#include <utility>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#else
// The same names without effect. NOLINTBEGIN(bugprone-reserved-identifier)
static inline void __sanitizer_start_switch_fiber(void**, const void*, std::size_t) {}
static inline void __sanitizer_finish_switch_fiber(void*, const void**, std::size_t*) {}
// NOLINTEND(bugprone-reserved-identifier)
#endif

namespace quest::emulator {

namespace {

constexpr std::size_t kStackBytes = std::size_t{256} << 10;

/// Hands out memory that somebody else owns.
struct BorrowedStack {
  std::byte* memory;

  boost::context::stack_context allocate() const {
    boost::context::stack_context context;
    context.sp = memory + kStackBytes;
    context.size = kStackBytes;
    return context;
  }
  void deallocate(boost::context::stack_context&) const {}
};

}  // namespace

// Not value-initialised: pages of the stack that are never used are never touched.
Fiber::Fiber() : stack_(new std::byte[kStackBytes]) {}

void Fiber::start(std::function<void()> body) {
  body_ = std::move(body);
  ended_ = false;
  const boost::context::preallocated place(stack_.get() + kStackBytes, kStackBytes,
                                           BorrowedStack{stack_.get()}.allocate());
  inside_ = boost::context::fiber(
      std::allocator_arg, place, BorrowedStack{stack_.get()},
      [this](boost::context::fiber&& resumer) {
        __sanitizer_finish_switch_fiber(nullptr, &outside_bottom_, &outside_size_);
        outside_ = std::move(resumer);
        body_();
        ended_ = true;
        // No fake stack to keep: this one ends here.
        __sanitizer_start_switch_fiber(nullptr, outside_bottom_, outside_size_);
        return std::move(outside_);
      });
}

void Fiber::resume() {
  void* fake_stack = nullptr;
  __sanitizer_start_switch_fiber(&fake_stack, stack_.get(), kStackBytes);
  inside_ = std::move(inside_).resume();
  __sanitizer_finish_switch_fiber(fake_stack, nullptr, nullptr);
}

void Fiber::pause() {
  void* fake_stack = nullptr;
  __sanitizer_start_switch_fiber(&fake_stack, outside_bottom_, outside_size_);
  outside_ = std::move(outside_).resume();
  __sanitizer_finish_switch_fiber(fake_stack, &outside_bottom_, &outside_size_);
}

}  // namespace quest::emulator
