// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "model/mapped_file.h"

struct ggml_context;
struct ggml_tensor;
struct gguf_context;

namespace quest {

/// A checked GGUF file: typed access to its keys, and its tensors' shapes with their data in the
/// mapping. Messages name the file and the key.
class GgufFile {
 public:
  /// Throws FileError for anything that is not a sound GGUF file.
  explicit GgufFile(const std::string& path);
  ~GgufFile();
  GgufFile(const GgufFile&) = delete;
  GgufFile& operator=(const GgufFile&) = delete;

  const std::string& path() const { return path_; }

  bool has(const std::string& key) const;
  /// The key's value; nothing if absent. FileError if it has another type or, for the integer, does
  /// not fit 0 … 2^31-1. An array of equal integers counts as one integer (some converters write
  /// one value a layer); UnsupportedModel if they differ.
  std::optional<std::int64_t> integer(const std::string& key) const;
  std::optional<float> real(const std::string& key) const;
  std::optional<std::string> text(const std::string& key) const;
  /// The same, FileError if absent.
  std::int64_t required_integer(const std::string& key) const;
  float required_real(const std::string& key) const;
  /// Number of elements of an array key, 0 if absent.
  std::int64_t array_size(const std::string& key) const;

  std::int64_t num_tensors() const;
  std::string tensor_name(std::int64_t index) const;
  /// Shape and type of a tensor (no data pointer), null if absent. Owned by the file.
  const ggml_tensor* tensor(const std::string& name) const;
  /// The tensor's bytes inside the mapping.
  std::byte* tensor_data(const std::string& name) const;
  const MappedFile& mapping() const { return mapping_; }

 private:
  std::int64_t find(const std::string& key) const;
  [[noreturn]] void fail(const std::string& key, const std::string& what) const;

  std::string path_;
  MappedFile mapping_;
  gguf_context* gguf_ = nullptr;
  ggml_context* tensors_ = nullptr;
};

}  // namespace quest
