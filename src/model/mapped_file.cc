// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "model/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "quest/error.h"

namespace quest {

MappedFile::MappedFile(const std::string& path) {
  // Opening a pipe must not wait for a writer.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) throw FileError(path + ": cannot open: " + std::strerror(errno));
  struct stat status {};
  const char* problem = nullptr;
  if (::fstat(fd, &status) != 0) {
    problem = std::strerror(errno);
  } else if (S_ISDIR(status.st_mode)) {
    problem = "is a directory; give a GGUF model file";
  } else if (!S_ISREG(status.st_mode)) {
    problem = "is not a regular file; give a GGUF model file";
  } else if (status.st_size == 0) {
    problem = "the file is empty; give a GGUF model file";
  }
  if (problem != nullptr) {
    ::close(fd);
    throw FileError(path + ": " + problem);
  }
  size_ = static_cast<std::size_t>(status.st_size);
  void* mapping = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, fd, 0);
  const int error = errno;
  ::close(fd);
  if (mapping == MAP_FAILED) {
    throw FileError(path + ": cannot map into memory: " + std::strerror(error));
  }
  data_ = static_cast<std::byte*>(mapping);
}

void MappedFile::forget_pages() const { ::madvise(data_, size_, MADV_DONTNEED); }

MappedFile::~MappedFile() { ::munmap(data_, size_); }

}  // namespace quest
