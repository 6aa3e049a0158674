// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

namespace quest::cpu {

/// Scratch floats on cache-line boundaries. Grows when asked to, which drops the contents; never
/// shrinks. New memory is zero.
class FloatBuffer {
 public:
  void grow(std::int64_t floats) {
    if (floats <= size_) return;
    const auto count = static_cast<std::size_t>(floats);
    data_.reset(static_cast<float*>(::operator new(count * sizeof(float), kAlignment)));
    std::fill_n(data_.get(), count, 0.0F);
    size_ = floats;
  }
  float* data() const { return data_.get(); }
  std::int64_t size() const { return size_; }

 private:
  static constexpr std::align_val_t kAlignment{64};
  struct Free {
    void operator()(float* p) const { ::operator delete(p, kAlignment); }
  };
  std::unique_ptr<float, Free> data_;
  std::int64_t size_ = 0;
};

/// `floats` rounded up to whole cache lines.
constexpr std::int64_t whole_lines(std::int64_t floats) { return (floats + 15) / 16 * 16; }

}  // namespace quest::cpu
