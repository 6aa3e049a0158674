// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "output.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <utility>

namespace quest::cli {
namespace {

void write_all(int file, std::string_view text, const std::string& name) {
  while (!text.empty()) {
    const ssize_t count = ::write(file, text.data(), text.size());
    if (count >= 0) {
      text.remove_prefix(static_cast<std::size_t>(count));
    } else if (errno == EPIPE) {
      throw ClosedPipe("nobody reads " + name);
    } else if (errno != EINTR) {
      throw FileError("cannot write " + name + ": " + std::strerror(errno));
    }
  }
}

// Devices and pipes cannot be replaced by renaming a file onto them; they are written in place.
bool replaceable(const std::string& path) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  return !std::filesystem::exists(status) || std::filesystem::is_regular_file(status);
}

int open_temporary(const std::string& target, std::string& path, const std::string& hint = {}) {
  path = target + ".XXXXXX";
  const int file = ::mkstemp(path.data());
  if (file < 0) {
    throw FileError("cannot write '" + target + "': " + std::strerror(errno) + hint);
  }
  return file;
}

// What a file that this program creates would get; mkstemp's own 0600 would surprise readers.
mode_t usual_mode() {
  const mode_t mask = ::umask(0);
  ::umask(mask);
  return 0666 & ~mask;
}

void replace_file(const std::string& target, std::string_view text) {
  std::string temporary;
  const int file = open_temporary(target, temporary);
  try {
    write_all(file, text, "'" + target + "'");
    if (::fchmod(file, usual_mode()) != 0 || ::fsync(file) != 0) {
      throw FileError("cannot write '" + target + "': " + std::strerror(errno));
    }
  } catch (...) {
    ::close(file);
    ::unlink(temporary.c_str());
    throw;
  }
  ::close(file);
  if (::rename(temporary.c_str(), target.c_str()) != 0) {
    const int error = errno;
    ::unlink(temporary.c_str());
    throw FileError("cannot write '" + target + "': " + std::strerror(error));
  }
}

void write_in_place(const std::string& target, std::string_view text) {
  const int file = ::open(target.c_str(), O_WRONLY | O_CLOEXEC);
  if (file < 0) throw FileError("cannot write '" + target + "': " + std::strerror(errno));
  try {
    write_all(file, text, "'" + target + "'");
  } catch (...) {
    ::close(file);
    throw;
  }
  if (::close(file) != 0) throw FileError("cannot write '" + target + "': " + std::strerror(errno));
}

}  // namespace

Output::Output(std::string path, const std::string& flag) : path_(std::move(path)) {
  if (path_.empty()) return;
  std::error_code error;
  if (std::filesystem::is_directory(path_, error)) {
    throw FileError("cannot write '" + path_ + "': it is a directory; name a file with " + flag);
  }
  if (!replaceable(path_)) return;
  std::string temporary;
  ::close(open_temporary(path_, temporary, "; choose another path for " + flag));
  ::unlink(temporary.c_str());
}

void Output::write(std::string_view text) {
  if (text.empty()) return;
  ends_line_ = text.back() == '\n';
  if (path_.empty()) {
    write_all(STDOUT_FILENO, text, "standard output");
  } else {
    collected_ += text;
  }
}

void Output::finish() {
  if (!ends_line_) write("\n");
  if (path_.empty()) return;
  if (replaceable(path_)) {
    replace_file(path_, collected_);
  } else {
    write_in_place(path_, collected_);
  }
}

NewFile::NewFile(std::string path, std::int64_t bytes, const std::string& flag)
    : path_(std::move(path)) {
  constexpr std::int64_t kReserve = std::int64_t{64} << 20;
  namespace fs = std::filesystem;
  std::error_code error;
  if (fs::exists(fs::symlink_status(path_, error))) {
    throw FileError("'" + path_ + "' exists and is not overwritten; name a new file with " + flag);
  }
  fs::path folder = fs::path(path_).parent_path();
  if (folder.empty()) folder = ".";
  const fs::space_info space = fs::space(folder, error);
  if (!error && space.available < static_cast<std::uintmax_t>(bytes + kReserve)) {
    throw FileError("'" + path_ + "' needs " + std::to_string(bytes) + " bytes, its disk has " +
                    std::to_string(space.available) + " free");
  }
  file_ = open_temporary(path_, temporary_, "; choose another path for " + flag);
}

NewFile::~NewFile() {
  if (file_ >= 0) ::close(file_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void NewFile::write(std::string_view bytes) { write_all(file_, bytes, "'" + path_ + "'"); }

void NewFile::finish() {
  if (::fchmod(file_, usual_mode()) != 0 || ::fsync(file_) != 0) {
    throw FileError("cannot write '" + path_ + "': " + std::strerror(errno));
  }
  // A link, unlike a renamed file, never replaces what is there; the temporary goes afterwards.
  if (::link(temporary_.c_str(), path_.c_str()) != 0) {
    throw FileError("cannot write '" + path_ + "': " + std::strerror(errno));
  }
}

}  // namespace quest::cli
