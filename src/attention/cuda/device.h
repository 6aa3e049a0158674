// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "attention/cuda/arguments.h"

namespace quest::cuda {

enum class Kernel {
  kAppendSummarise,
  kScore,
  kCombine,
  kSelect,
  kSelectRange,
  kSelectHistogram,
  kSelectNarrow,
  kPlanSplits,
  kAttend,
  kMergeSplits,
  kPrefill,
  kCopyPage,
  kPatchTables,
};

constexpr const char* name_of(Kernel kernel) {
  switch (kernel) {
    case Kernel::kAppendSummarise:
      return "append_summarise";
    case Kernel::kScore:
      return "score";
    case Kernel::kCombine:
      return "combine";
    case Kernel::kSelect:
      return "select";
    case Kernel::kSelectRange:
      return "select_range";
    case Kernel::kSelectHistogram:
      return "select_histogram";
    case Kernel::kSelectNarrow:
      return "select_narrow";
    case Kernel::kPlanSplits:
      return "plan_splits";
    case Kernel::kAttend:
      return "attend";
    case Kernel::kMergeSplits:
      return "merge_splits";
    case Kernel::kPrefill:
      return "prefill";
    case Kernel::kCopyPage:
      return "copy_page";
    case Kernel::kPatchTables:
      return "patch_tables";
  }
  return "?";
}

/// The kernel, the blocks and the shape, for messages.
std::string describe_launch(Kernel kernel, const LayerArgs& args, std::int64_t blocks);

/// What decides whether a GPU is served.
struct GpuFacts {
  std::string name;
  int major = 0;  ///< of its architecture
  int minor = 0;
  bool has_kernels = true;  ///< the program holds code that it can run
};

/// Throws Error, naming the GPU, its architecture and the remedy, for one that is not served.
void require_served(const GpuFacts& gpu);

/// A GPU, or what stands for one in tests: memory, and one stream on which copies and kernels run
/// in the order of the calls. All of it belongs to one thread at a time.
class Device {
 public:
  virtual ~Device() = default;
  virtual std::string name() const = 0;
  /// Blocks that keep it busy are some multiple of this.
  virtual int multiprocessors() const = 0;
  /// Blocks of a kernel that one multiprocessor works on at a time, at least 1.
  virtual int resident_blocks(Kernel kernel, const LayerArgs& args) = 0;
  /// Bytes that could be allocated now, about.
  virtual std::int64_t free_memory() = 0;

  /// Memory aligned to 256 bytes, of any content. Throws Error naming the bytes wanted and free.
  virtual void* allocate(std::int64_t bytes) = 0;
  virtual void release(void* memory) noexcept = 0;
  /// `from` may be changed once this returns.
  virtual void upload(void* to, const void* from, std::int64_t bytes) = 0;
  /// Waits for everything before, then copies.
  virtual void download(void* to, const void* from, std::int64_t bytes) = 0;
  virtual void synchronise() = 0;

  /// Runs a kernel on `blocks` blocks. Throws Error naming the kernel and its shape if it cannot be
  /// launched; faults of running kernels surface at the latest in `download` and `synchronise`.
  virtual void launch(Kernel kernel, const LayerArgs& args, std::int64_t blocks) = 0;

  /// Notes the time at which the stream gets here, under a number of the caller's.
  virtual void mark(std::size_t event) = 0;
  /// Seconds between two marks that the stream has passed.
  virtual double seconds_between(std::size_t first, std::size_t second) = 0;
};

/// Device memory for `size()` objects of plain data, freed with its owner.
template <class T>
class DeviceArray {
 public:
  DeviceArray() = default;
  explicit DeviceArray(Device& device) : device_(&device) {}
  DeviceArray(DeviceArray&& other) noexcept
      : device_(other.device_),
        data_(std::exchange(other.data_, nullptr)),
        size_(std::exchange(other.size_, 0)) {}
  DeviceArray& operator=(DeviceArray&&) = delete;
  ~DeviceArray() {
    if (data_ != nullptr) device_->release(data_);
  }

  /// Makes room for `size` objects; what was there is lost if that needs more memory.
  void grow(std::int64_t size) {
    if (size <= size_) return;
    if (data_ != nullptr) device_->release(std::exchange(data_, nullptr));
    size_ = 0;
    data_ = static_cast<T*>(device_->allocate(size * static_cast<std::int64_t>(sizeof(T))));
    size_ = size;
  }
  T* data() const { return data_; }
  std::int64_t size() const { return size_; }

 private:
  Device* device_ = nullptr;
  T* data_ = nullptr;
  std::int64_t size_ = 0;
};

}  // namespace quest::cuda
