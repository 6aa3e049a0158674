// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "cache/page_memory.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <limits>
#include <string>

#include "quest/error.h"

namespace quest {

namespace {

[[noreturn]] void refuse(std::int64_t bytes, const char* reason) {
  throw Error("cannot allocate " + std::to_string(bytes) + " bytes for the KV cache: " + reason +
              "; use a smaller context or KV type");
}

}  // namespace

PageMemory::PageMemory(std::int64_t bytes) {
  if (bytes <= 0) refuse(bytes, "the size is not positive");
  if (static_cast<std::uint64_t>(bytes) > std::numeric_limits<std::size_t>::max() - kAlignment) {
    refuse(bytes, "the size exceeds the address space");
  }
  bytes_ = static_cast<std::size_t>(bytes);
  const std::size_t mapped = bytes_ + kAlignment;
  void* base = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED) refuse(bytes, std::strerror(errno));

  // mmap aligns to small pages only: give back what lies before the aligned start. What is left
  // behind the end is never touched and is unmapped with the rest.
  const auto address = reinterpret_cast<std::uintptr_t>(base);
  const std::size_t lead = (kAlignment - address % kAlignment) % kAlignment;
  if (lead > 0) munmap(base, lead);
  data_ = static_cast<std::byte*>(base) + lead;
  const std::size_t trail = kAlignment - lead;
  bytes_ += trail;
#ifdef MADV_HUGEPAGE
  madvise(data_, bytes_, MADV_HUGEPAGE);  // a hint: refusal changes nothing but speed
#endif
}

PageMemory::~PageMemory() { munmap(data_, bytes_); }

}  // namespace quest
