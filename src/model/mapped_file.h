// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

namespace quest {

/// A file mapped read-only for as long as the object lives.
class MappedFile {
 public:
  /// Throws FileError if the file cannot be opened, is not a regular file or is empty.
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }
  /// Gives the pages back to the system; they return from the file when they are read again.
  void forget_pages() const;

 private:
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace quest
