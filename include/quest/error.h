// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdexcept>
#include <string>

namespace quest {

/// Base of every exception that the library throws on purpose. The text names the offending thing
/// and what to do about it, in one line.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// An argument, option or batch description that no state of the library could accept.
class InvalidArgument : public Error {
 public:
  using Error::Error;
};

/// A file that is missing, unreadable, truncated or not what it claims to be.
class FileError : public Error {
 public:
  using Error::Error;
};

/// A well-formed model that this engine does not run (architecture, sliding window, MoE …).
class UnsupportedModel : public Error {
 public:
  using Error::Error;
};

/// The page pool has no free page left. The cache is as it was before the call (SPEC S7.1).
class OutOfPages : public Error {
 public:
  using Error::Error;
};

}  // namespace quest
