// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "model/bad_files.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <stdexcept>

#include "gguf.h"

namespace quest::testing {
namespace {

constexpr std::size_t kVersionOffset = 4;
constexpr std::size_t kTensorCountOffset = 8;
constexpr std::size_t kKeyCountOffset = 16;
constexpr std::size_t kFirstKeyOffset = 24;
constexpr std::uint64_t kHuge = std::uint64_t{1} << 60;

template <typename T>
Bytes patched(Bytes bytes, std::size_t offset, T value) {
  std::memcpy(bytes.data() + offset, &value, sizeof(T));
  return bytes;
}

/// A tensor's record behind its name: dimension count, two dimensions, type, offset.
struct MatrixRecord {
  std::size_t dims, rows, columns, type, offset;
};
MatrixRecord matrix_record(const Bytes& bytes, std::string_view name) {
  const std::size_t at = offset_behind(bytes, name);
  return {at, at + 4, at + 12, at + 20, at + 24};
}

Bytes with_name_changed(Bytes bytes, std::string_view from, std::string_view to) {
  if (from.size() != to.size()) throw std::logic_error("names differ in length");
  const std::size_t at = offset_behind(bytes, from) - from.size();
  std::copy(to.begin(), to.end(), bytes.begin() + static_cast<std::ptrdiff_t>(at));
  return bytes;
}

/// The good model with its keys changed.
Bytes edited(const std::function<void(gguf_context*)>& edit, TinyModel model = good_model()) {
  model.edit = edit;
  return tiny_gguf_bytes(model);
}
Bytes without_key(const char* key, const TinyModel& model = good_model()) {
  return edited([key](gguf_context* gguf) { gguf_remove_key(gguf, key); }, model);
}
Bytes with_u32(const char* key, std::uint32_t value, const TinyModel& model = good_model()) {
  return edited([=](gguf_context* gguf) { gguf_set_val_u32(gguf, key, value); }, model);
}
Bytes with_f32(const char* key, float value) {
  return edited([=](gguf_context* gguf) { gguf_set_val_f32(gguf, key, value); });
}
Bytes with_text(const char* key, const char* value, const TinyModel& model = good_model()) {
  return edited([=](gguf_context* gguf) { gguf_set_val_str(gguf, key, value); }, model);
}

void add_header_faults(std::vector<BadFile>& files, const Bytes& good) {
  files.push_back({"empty", {}, "empty"});
  files.push_back({"magic", patched(good, 0, 'X'), "magic"});
  files.push_back({"text file", Bytes(5000, 'a'), "magic"});
  for (const std::uint32_t version : {0U, 1U, 4U, 99U, 0xFFFFFFFFU}) {
    files.push_back(
        {"version " + std::to_string(version), patched(good, kVersionOffset, version), "version"});
  }
  files.push_back({"byte-swapped version", patched(good, kVersionOffset, 0x03000000U), "version"});
  for (const std::uint64_t count : {kHuge, ~std::uint64_t{0}, kHuge * 8, std::uint64_t{10000000}}) {
    const std::string name = "count " + std::to_string(count);
    files.push_back({"tensor " + name, patched(good, kTensorCountOffset, count), "tensor count"});
    files.push_back({"key " + name, patched(good, kKeyCountOffset, count), "key count"});
  }
  files.push_back({"one key more", patched(good, kKeyCountOffset, std::uint64_t{1000}), "key"});
}

void add_key_faults(std::vector<BadFile>& files, const Bytes& good) {
  for (const std::uint64_t length : {kHuge, ~std::uint64_t{0}, std::uint64_t{1} << 32}) {
    files.push_back(
        {"key length " + std::to_string(length), patched(good, kFirstKeyOffset, length), "key 0"});
    files.push_back({"string length " + std::to_string(length),
                     patched(good, offset_behind(good, "general.name") + 4, length),
                     "general.name"});
  }
  files.push_back({"empty key", patched(good, kFirstKeyOffset, std::uint64_t{0}), "key 0"});
  const std::size_t type = offset_behind(good, "llama.block_count");
  for (const std::uint32_t value : {13U, 9999U, 0xFFFFFFFFU}) {
    files.push_back(
        {"key type " + std::to_string(value), patched(good, type, value), "llama.block_count"});
  }
  files.push_back({"key twice", with_name_changed(good, "llama.block_count", "general.alignment"),
                   "general.alignment"});
  files.push_back({"zero byte in a key",
                   with_name_changed(good, "general.name", std::string_view("general.nam\0", 12)),
                   "zero byte"});
  const std::string tokens = "tokenizer.ggml.tokens";
  const std::size_t array = offset_behind(good, tokens);
  files.push_back({"array of arrays", patched(good, array + 4, 9U), tokens});
  files.push_back({"array element type", patched(good, array + 4, 77U), tokens});
  const std::size_t scores = offset_behind(good, "tokenizer.ggml.scores");
  for (const std::uint64_t count : {kHuge, ~std::uint64_t{0}, std::uint64_t{1} << 62}) {
    files.push_back(
        {"string array of " + std::to_string(count), patched(good, array + 8, count), tokens});
    files.push_back({"float array of " + std::to_string(count), patched(good, scores + 8, count),
                     "tokenizer.ggml.scores"});
  }
  const std::size_t alignment = offset_behind(good, "general.alignment");
  for (const std::uint32_t value : {0U, 1U, 3U, 33U, 0xFFFFFFFFU}) {
    files.push_back({"alignment " + std::to_string(value), patched(good, alignment + 4, value),
                     "general.alignment"});
  }
  files.push_back({"alignment of the wrong type",
                   patched(good, alignment, static_cast<std::uint32_t>(GGUF_TYPE_INT32)),
                   "general.alignment"});
  files.push_back(
      {"architecture missing", without_key("general.architecture"), "general.architecture"});
  files.push_back(
      {"architecture a number", with_u32("general.architecture", 1), "general.architecture"});
  files.push_back({"split",
                   edited([](gguf_context* gguf) { gguf_set_val_u16(gguf, "split.count", 2); }),
                   "split.count", true});
}

void add_tensor_faults(std::vector<BadFile>& files, const Bytes& good) {
  const std::string name = "blk.0.ffn_up.weight";
  const MatrixRecord record = matrix_record(good, name);
  for (const std::uint32_t dims : {0U, 5U, 0xFFFFFFFFU}) {
    files.push_back({"dimensions " + std::to_string(dims), patched(good, record.dims, dims), name});
  }
  constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
  for (const std::int64_t size : {std::int64_t{0}, std::int64_t{-1}, -kMax - 1, kMax, kMax / 2,
                                  std::int64_t{1} << 32, std::int64_t{1} << 56}) {
    files.push_back(
        {"dimension " + std::to_string(size), patched(good, record.columns, size), name});
    files.push_back({"row of " + std::to_string(size), patched(good, record.rows, size), name});
  }
  const Bytes square = patched(patched(good, record.rows, std::int64_t{1} << 32), record.columns,
                               std::int64_t{1} << 32);
  files.push_back({"product that wraps to zero", square, name});
  for (const std::uint32_t type : {4U, 31U, 43U, 1000U, 0xFFFFFFFFU}) {
    files.push_back(
        {"tensor type " + std::to_string(type), patched(good, record.type, type), name});
  }
  files.push_back({"row not a multiple of the type's group",
                   patched(patched(good, record.rows, std::int64_t{100}), record.type,
                           static_cast<std::uint32_t>(GGML_TYPE_Q4_0)),
                   name});
  for (const std::uint64_t offset : {std::uint64_t{1}, std::uint64_t{0}, std::uint64_t{good.size()},
                                     kHuge, ~std::uint64_t{0}, ~std::uint64_t{31}}) {
    files.push_back(
        {"offset " + std::to_string(offset), patched(good, record.offset, offset), name});
  }
  files.push_back({"tensor twice", with_name_changed(good, name, "blk.0.attn_k.weight"), "blk.0"});
  files.push_back({"zero byte in a tensor's name",
                   with_name_changed(good, name, std::string_view("blk.0.ffn_up.weigh\0", 19)),
                   "zero byte"});
  files.push_back({"tensor name length",
                   patched(good, record.dims - name.size() - 8, std::uint64_t{200}), "tensor"});
}

void add_tokenizer_faults(std::vector<BadFile>& files) {
  const std::string prefix = "tokenizer.ggml.";
  TinyModel pairs = good_model();
  pairs.tokens = TinyVocabulary::kBytePairs;
  for (const char* key : {"model", "tokens"}) {
    files.push_back({std::string("no ") + key, without_key((prefix + key).c_str()), prefix + key});
  }
  files.push_back({"no merges", without_key("tokenizer.ggml.merges", pairs), "merges"});
  for (const char* model : {"rwkv", "t5", "bert", "none", "nonsense", ""}) {
    files.push_back({std::string("tokenizer model ") + model,
                     with_text("tokenizer.ggml.model", model), "tokenizer.ggml.model", true});
  }
  const auto with_array = [&](const char* key, gguf_type type, std::size_t count,
                              const TinyModel& model = good_model()) {
    return edited(
        [=](gguf_context* gguf) {
          const std::vector<std::uint64_t> zeros(count + 1);
          gguf_set_arr_data(gguf, key, type, zeros.data(), count);
        },
        model);
  };
  const auto vocabulary = static_cast<std::size_t>(good_model().vocabulary);
  files.push_back({"tokens of numbers", with_array("tokenizer.ggml.tokens", GGUF_TYPE_INT32, 320),
                   "tokenizer.ggml.tokens"});
  files.push_back({"no tokens at all", edited([](gguf_context* gguf) {
                     gguf_set_arr_str(gguf, "tokenizer.ggml.tokens", nullptr, 0);
                   }),
                   "tokenizer.ggml.tokens"});
  files.push_back(
      {"tokens a string", with_text("tokenizer.ggml.tokens", "a b"), "tokenizer.ggml.tokens"});
  for (const char* key : {"tokenizer.ggml.scores", "tokenizer.ggml.token_type"}) {
    const bool scores = std::string(key) == "tokenizer.ggml.scores";
    const gguf_type right = scores ? GGUF_TYPE_FLOAT32 : GGUF_TYPE_INT32;
    files.push_back({std::string("short ") + key, with_array(key, right, vocabulary - 1), key});
    files.push_back({std::string("empty ") + key, with_array(key, right, 0), key});
    files.push_back(
        {std::string("narrow ") + key, with_array(key, GGUF_TYPE_INT8, vocabulary), key});
    files.push_back({std::string("scalar ") + key, with_u32(key, 1), key});
  }
  files.push_back({"merges of numbers",
                   with_array("tokenizer.ggml.merges", GGUF_TYPE_INT32, 10, pairs), "merges"});
  // libllama asserts that all texts differ.
  const auto with_tokens = [](std::vector<std::string> texts) {
    return edited([texts = std::move(texts)](gguf_context* gguf) {
      std::vector<const char*> pointers;
      for (const std::string& text : texts) pointers.push_back(text.c_str());
      while (pointers.size() < 320) pointers.push_back(nullptr);
      std::vector<std::string> rest;
      rest.reserve(320);
      for (std::size_t i = texts.size(); i < 320; ++i) {
        pointers[i] = rest.emplace_back("token" + std::to_string(i)).c_str();
      }
      gguf_set_arr_str(gguf, "tokenizer.ggml.tokens", pointers.data(), pointers.size());
    });
  };
  files.push_back({"same token twice", with_tokens({"<unk>", "a", "a"}), "token 2"});
  files.push_back(
      {"token like the stand-in of an empty one", with_tokens({"", "[EMPTY_0]"}), "token 1"});
  files.push_back(
      {"special id of the wrong type", with_f32("tokenizer.ggml.bos_token_id", 1), "bos_token_id"});
  files.push_back(
      {"flag of the wrong type", with_u32("tokenizer.ggml.add_bos_token", 1), "add_bos_token"});
  files.push_back(
      {"chat template of the wrong type", with_u32("tokenizer.chat_template", 1), "chat_template"});
  const auto add_bos = [](gguf_context* gguf) {
    gguf_set_val_bool(gguf, "tokenizer.ggml.add_bos_token", true);
  };
  files.push_back({"begin-of-text wanted but absent",
                   edited(
                       [add_bos](gguf_context* gguf) {
                         add_bos(gguf);
                         gguf_remove_key(gguf, "tokenizer.ggml.bos_token_id");
                       },
                       pairs),
                   "add_bos_token"});
  files.push_back({"begin-of-text wanted but out of range",
                   edited(
                       [add_bos](gguf_context* gguf) {
                         add_bos(gguf);
                         gguf_set_val_u32(gguf, "tokenizer.ggml.bos_token_id", 320);
                       },
                       pairs),
                   "bos_token_id"});
}

void add_missing_keys(std::vector<BadFile>& files) {
  for (const char* key : {"llama.block_count", "llama.context_length", "llama.embedding_length",
                          "llama.feed_forward_length", "llama.attention.head_count",
                          "llama.attention.layer_norm_rms_epsilon"}) {
    files.push_back({std::string("no ") + key, without_key(key), key});
    files.push_back({std::string("text in ") + key, with_text(key, "many"), key});
  }
  for (const char* key : {"llama.block_count", "llama.context_length", "llama.embedding_length",
                          "llama.feed_forward_length", "llama.attention.head_count"}) {
    for (const std::uint32_t value : {0U, 0xFFFFFFFFU}) {
      const std::string name = std::string(key) + " " + std::to_string(value);
      files.push_back({name, with_u32(key, value), key});
    }
  }
  constexpr std::uint32_t kAbsurd = 0x7FFFFFFF;
  files.push_back({"absurd block count", with_u32("llama.block_count", kAbsurd), "block_count"});
  files.push_back(
      {"absurd head count", with_u32("llama.attention.head_count", kAbsurd), "head_count"});
  // These make another shape or head size; the message may name that.
  files.push_back({"absurd inner size", with_u32("llama.feed_forward_length", kAbsurd), "ffn_"});
  files.push_back(
      {"absurd embedding", with_u32("llama.embedding_length", kAbsurd), "key_length", true});
  for (const float value :
       {-1.0F, std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    files.push_back({"epsilon " + std::to_string(value),
                     with_f32("llama.attention.layer_norm_rms_epsilon", value), "epsilon"});
    files.push_back({"frequency base " + std::to_string(value),
                     with_f32("llama.rope.freq_base", value), "freq_base"});
  }
}

void add_shape_faults(std::vector<BadFile>& files) {
  for (const char* tensor :
       {"token_embd.weight", "output_norm.weight", "blk.0.attn_norm.weight", "blk.0.attn_q.weight",
        "blk.0.attn_k.weight", "blk.0.attn_v.weight", "blk.0.attn_output.weight",
        "blk.0.ffn_norm.weight", "blk.0.ffn_gate.weight", "blk.0.ffn_up.weight",
        "blk.0.ffn_down.weight"}) {
    TinyModel model = good_model();
    model.omit = [tensor](const std::string& name) { return name == tensor; };
    files.push_back({std::string("no ") + tensor, tiny_gguf_bytes(model), tensor});
    for (const std::size_t axis : {0U, 1U}) {
      model = good_model();
      model.reshape = [=](const std::string& name, std::vector<std::int64_t>& shape) {
        if (name == tensor) shape[std::min(axis, shape.size() - 1)] += 32;
      };
      files.push_back({std::string("shape of ") + tensor, tiny_gguf_bytes(model), tensor});
    }
  }
  TinyModel biased = good_model();
  biased.qkv_bias = true;
  biased.reshape = [](const std::string& name, std::vector<std::int64_t>& shape) {
    if (name == "blk.0.attn_q.bias") shape[0] += 32;
  };
  files.push_back({"shape of a bias", tiny_gguf_bytes(biased), "blk.0.attn_q.bias"});
  TinyModel factors = good_model();
  factors.rope = TinyRope::kLlama3;
  factors.rope_factor = 8;
  factors.reshape = [](const std::string& name, std::vector<std::int64_t>& shape) {
    if (name == "rope_freqs.weight") shape[0] = 24;
  };
  files.push_back(
      {"shape of the frequency factors", tiny_gguf_bytes(factors), "rope_freqs.weight"});
  files.push_back({"more layers than tensors", with_u32("llama.block_count", 2), "blk.1."});
  TinyModel qwen = good_model();
  qwen.architecture = "qwen3";
  qwen.omit = [](const std::string& name) { return name == "blk.0.attn_q_norm.weight"; };
  files.push_back({"no query norm", tiny_gguf_bytes(qwen), "attn_q_norm"});
}

void add_unsupported(std::vector<BadFile>& files) {
  for (const char* architecture : {"gpt2", "gemma2", "mamba", "nonsense"}) {
    files.push_back({std::string("architecture ") + architecture,
                     with_text("general.architecture", architecture), architecture, true});
  }
  files.push_back({"experts", with_u32("llama.expert_count", 8), "expert_count", true});
  files.push_back(
      {"sliding window", with_u32("llama.attention.sliding_window", 1024), "sliding_window", true});
  files.push_back({"longrope", with_text("llama.rope.scaling.type", "longrope"), "longrope", true});
  files.push_back({"rope scaling of no known kind",
                   with_text("llama.rope.scaling.type", "nonsense"), "rope.scaling.type", true});
  TinyModel narrow = good_model();
  narrow.head_dim = 48;
  files.push_back({"head size 48", tiny_gguf_bytes(narrow), "key_length", true});
}

void add_head_faults(std::vector<BadFile>& files) {
  files.push_back({"KV heads that do not divide", with_u32("llama.attention.head_count_kv", 3),
                   "head_count_kv"});
  files.push_back({"no KV heads", with_u32("llama.attention.head_count_kv", 0), "head_count_kv"});
  files.push_back(
      {"more KV heads than heads", with_u32("llama.attention.head_count_kv", 8), "head_count_kv"});
  files.push_back({"value length unlike key length", edited([](gguf_context* gguf) {
                     gguf_set_val_u32(gguf, "llama.attention.key_length", 64);
                     gguf_set_val_u32(gguf, "llama.attention.value_length", 128);
                   }),
                   "value_length", true});
  files.push_back({"rotated part of a head", with_u32("llama.rope.dimension_count", 32),
                   "rope.dimension_count", true});
  for (const float value : {-2.0F, std::numeric_limits<float>::quiet_NaN()}) {
    files.push_back({"scaling factor " + std::to_string(value), edited([value](gguf_context* gguf) {
                       gguf_set_val_str(gguf, "llama.rope.scaling.type", "linear");
                       gguf_set_val_f32(gguf, "llama.rope.scaling.factor", value);
                     }),
                     "rope.scaling.factor"});
  }
}

}  // namespace

TinyModel good_model() {
  TinyModel model;
  model.layers = 1;
  return model;
}

std::size_t offset_behind(const Bytes& bytes, std::string_view name) {
  Bytes pattern(8);
  const std::uint64_t length = name.size();
  std::memcpy(pattern.data(), &length, sizeof(length));
  pattern.insert(pattern.end(), name.begin(), name.end());
  const auto found = std::search(bytes.begin(), bytes.end(), pattern.begin(), pattern.end());
  if (found == bytes.end()) throw std::logic_error("no such name: " + std::string(name));
  return static_cast<std::size_t>(found - bytes.begin()) + pattern.size();
}

std::size_t data_offset(const Bytes& bytes) {
  const TemporaryFile file(bytes);
  gguf_context* gguf = gguf_init_from_file(file.path().c_str(), {true, nullptr});
  const std::size_t offset = gguf_get_data_offset(gguf);
  gguf_free(gguf);
  return offset;
}

std::vector<BadFile> bad_containers() {
  const Bytes good = tiny_gguf_bytes(good_model());
  std::vector<BadFile> files;
  add_header_faults(files, good);
  add_key_faults(files, good);
  add_tensor_faults(files, good);
  add_tokenizer_faults(files);
  return files;
}

std::vector<BadFile> bad_models() {
  std::vector<BadFile> files;
  add_missing_keys(files);
  add_shape_faults(files);
  add_head_faults(files);
  add_unsupported(files);
  return files;
}

}  // namespace quest::testing
