// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "model/gguf_file.h"

#include <ggml.h>
#include <gguf.h>

#include <limits>

#include "model/gguf_check.h"
#include "quest/error.h"

namespace quest {

namespace {

// Any GGUF integer type as int64; nothing for other types. Values above int64 become negative and
// are refused by the range check of the caller.
std::optional<std::int64_t> integer_at(gguf_type type, const void* data, std::size_t index) {
  switch (type) {
    case GGUF_TYPE_UINT8:
      return static_cast<const std::uint8_t*>(data)[index];
    case GGUF_TYPE_INT8:
      return static_cast<const std::int8_t*>(data)[index];
    case GGUF_TYPE_UINT16:
      return static_cast<const std::uint16_t*>(data)[index];
    case GGUF_TYPE_INT16:
      return static_cast<const std::int16_t*>(data)[index];
    case GGUF_TYPE_UINT32:
      return static_cast<const std::uint32_t*>(data)[index];
    case GGUF_TYPE_INT32:
      return static_cast<const std::int32_t*>(data)[index];
    case GGUF_TYPE_UINT64:
      return static_cast<std::int64_t>(static_cast<const std::uint64_t*>(data)[index]);
    case GGUF_TYPE_INT64:
      return static_cast<const std::int64_t*>(data)[index];
    default:
      return std::nullopt;
  }
}

}  // namespace

GgufFile::GgufFile(const std::string& path) : path_(path), mapping_(path) {
  check_gguf_bytes({mapping_.data(), mapping_.size()}, path);
  gguf_init_params params{};
  params.no_alloc = true;
  params.ctx = &tensors_;
  gguf_ = gguf_init_from_file(path.c_str(), params);
  if (gguf_ == nullptr) throw FileError(path + ": ggml does not accept this GGUF file");
}

GgufFile::~GgufFile() {
  gguf_free(gguf_);
  ggml_free(tensors_);
}

std::int64_t GgufFile::find(const std::string& key) const {
  return gguf_find_key(gguf_, key.c_str());
}

void GgufFile::fail(const std::string& key, const std::string& what) const {
  throw FileError(path_ + ": key " + key + " " + what);
}

bool GgufFile::has(const std::string& key) const { return find(key) >= 0; }

std::optional<std::int64_t> GgufFile::integer(const std::string& key) const {
  const std::int64_t id = find(key);
  if (id < 0) return std::nullopt;
  gguf_type type = gguf_get_kv_type(gguf_, id);
  const bool array = type == GGUF_TYPE_ARRAY;
  if (array) type = gguf_get_arr_type(gguf_, id);
  const std::size_t count = array ? gguf_get_arr_n(gguf_, id) : 1;
  if (count == 0 || type == GGUF_TYPE_STRING || type == GGUF_TYPE_ARRAY) {
    fail(key, "is not an integer");
  }
  const void* data = array ? gguf_get_arr_data(gguf_, id) : gguf_get_val_data(gguf_, id);
  std::optional<std::int64_t> value = integer_at(type, data, 0);
  if (!value) fail(key, "is not an integer");
  if (*value < 0 || *value > std::numeric_limits<std::int32_t>::max()) {
    fail(key, "has the value " + std::to_string(*value) + ", outside 0 … 2147483647");
  }
  for (std::size_t i = 1; i < count; ++i) {
    if (integer_at(type, data, i) != value) {
      throw UnsupportedModel(path_ + ": key " + key +
                             " differs from layer to layer, which this engine does not run");
    }
  }
  return value;
}

std::optional<float> GgufFile::real(const std::string& key) const {
  const std::int64_t id = find(key);
  if (id < 0) return std::nullopt;
  switch (gguf_get_kv_type(gguf_, id)) {
    case GGUF_TYPE_FLOAT32:
      return gguf_get_val_f32(gguf_, id);
    case GGUF_TYPE_FLOAT64:
      return static_cast<float>(gguf_get_val_f64(gguf_, id));
    default:
      fail(key, "is not a floating-point number");
  }
}

std::optional<std::string> GgufFile::text(const std::string& key) const {
  const std::int64_t id = find(key);
  if (id < 0) return std::nullopt;
  if (gguf_get_kv_type(gguf_, id) != GGUF_TYPE_STRING) fail(key, "is not a string");
  return std::string(gguf_get_val_str(gguf_, id));
}

std::int64_t GgufFile::required_integer(const std::string& key) const {
  const auto value = integer(key);
  if (!value) fail(key, "is missing");
  return *value;
}

float GgufFile::required_real(const std::string& key) const {
  const auto value = real(key);
  if (!value) fail(key, "is missing");
  return *value;
}

std::int64_t GgufFile::array_size(const std::string& key) const {
  const std::int64_t id = find(key);
  if (id < 0) return 0;
  if (gguf_get_kv_type(gguf_, id) != GGUF_TYPE_ARRAY) fail(key, "is not an array");
  return static_cast<std::int64_t>(gguf_get_arr_n(gguf_, id));
}

std::int64_t GgufFile::num_tensors() const { return gguf_get_n_tensors(gguf_); }

std::string GgufFile::tensor_name(std::int64_t index) const {
  return gguf_get_tensor_name(gguf_, index);
}

const ggml_tensor* GgufFile::tensor(const std::string& name) const {
  return ggml_get_tensor(tensors_, name.c_str());
}

std::byte* GgufFile::tensor_data(const std::string& name) const {
  const std::int64_t id = gguf_find_tensor(gguf_, name.c_str());
  if (id < 0) throw FileError(path_ + ": tensor " + name + " is missing");
  return mapping_.data() + gguf_get_data_offset(gguf_) + gguf_get_tensor_offset(gguf_, id);
}

}  // namespace quest
