// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ggml.h"

struct gguf_context;

namespace quest::testing {

enum class TinyRope { kNone, kLinear, kYarn, kLlama3 };
enum class TinyVocabulary { kSpm, kBytePairs };

/// A model small enough to be written, loaded and run in milliseconds, with random weights whose
/// logits depend strongly on the whole context.
struct TinyModel {
  std::string architecture = "llama";
  std::int32_t layers = 2;
  std::int32_t heads = 4;
  std::int32_t kv_heads = 2;
  std::int32_t head_dim = 64;
  std::int32_t embedding = 256;
  std::int32_t feed_forward = 256;
  std::int32_t vocabulary = 320;
  std::int32_t context = 4096;
  bool tied = false;
  ggml_type weights = GGML_TYPE_F32;

  float freq_base = 10000;
  TinyRope rope = TinyRope::kNone;
  float rope_factor = 1;
  std::int32_t original_context = 0;  ///< 0: key absent
  float rope_attn_factor = 0;         ///< 0: key absent
  float yarn_beta_fast = 0;           ///< 0: key absent

  bool qkv_bias = false;  ///< always on for qwen2
  bool output_bias = false;
  bool feed_forward_bias = false;

  TinyVocabulary tokens = TinyVocabulary::kSpm;
  bool special_tokens = true;  ///< false: every optional special token and flag absent
  bool byte_tokens = true;     ///< false: SPM without byte tokens, hence without newline
  std::string pre = "default";

  std::uint32_t seed = 1;
  /// Type of a matrix, by its name; `weights` where empty.
  std::function<ggml_type(const std::string&)> type_of;
  /// Last changes to the keys before the file is written.
  std::function<void(gguf_context*)> edit;
  /// True for tensors that shall be left out.
  std::function<bool(const std::string&)> omit;
  /// May change a tensor's shape.
  std::function<void(const std::string&, std::vector<std::int64_t>&)> reshape;
};

/// Writes the file. Fails the calling program (std::runtime_error) if it cannot be written.
void write_tiny_gguf(const TinyModel& model, const std::string& path);
/// The bytes that write_tiny_gguf would write.
std::vector<std::uint8_t> tiny_gguf_bytes(const TinyModel& model);

/// A file in the temporary folder, removed at the end of scope.
class TemporaryFile {
 public:
  explicit TemporaryFile(const TinyModel& model);
  explicit TemporaryFile(const std::vector<std::uint8_t>& bytes);
  ~TemporaryFile();
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

std::vector<std::uint8_t> read_bytes(const std::string& path);

}  // namespace quest::testing
