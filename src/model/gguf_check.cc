// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "model/gguf_check.h"

#include <limits>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "ggml.h"
#include "model/gguf_metadata.h"
#include "model/mapped_file.h"

namespace quest {

std::string printable(std::string_view text) {
  constexpr std::size_t kMaxShown = 80;
  std::string shown;
  for (const char c : text.substr(0, kMaxShown)) shown += c >= ' ' && c <= '~' ? c : '?';
  if (text.size() > kMaxShown) shown += "...";
  return shown;
}

void GgufReader::fail(const std::string& field, const std::string& problem) const {
  throw FileError(name_ + ": " + field + ": " + problem);
}

std::span<const std::byte> GgufReader::take(std::uint64_t count, const std::string& field) {
  if (count > remaining()) {
    fail(field, "the file ends inside it (" + std::to_string(count) + " bytes needed at offset " +
                    std::to_string(offset_) + ", " + std::to_string(remaining()) + " left)");
  }
  const std::span<const std::byte> taken = bytes_.subspan(offset_, count);
  offset_ += count;
  return taken;
}

std::string_view GgufReader::read_string(const std::string& field) {
  const auto length = read<std::uint64_t>(field);
  const std::span<const std::byte> raw = take(length, field);
  return {reinterpret_cast<const char*>(raw.data()), raw.size()};
}

namespace {

constexpr std::uint64_t kMinKeyBytes = 8 + 1 + 4 + 1;             // length, name, type, value
constexpr std::uint64_t kMinTensorBytes = 8 + 1 + 4 + 8 + 4 + 8;  // name, dims, type, offset
constexpr std::uint32_t kOldestVersion = 2;

struct Header {
  std::uint64_t tensors = 0;
  std::uint64_t keys = 0;
};

Header read_header(GgufReader& reader) {
  const std::span<const std::byte> magic = reader.take(4, "magic");
  if (std::memcmp(magic.data(), GGUF_MAGIC, 4) != 0) {
    reader.fail("magic", "this is not a GGUF file");
  }
  const auto version = reader.read<std::uint32_t>("version");
  if (version != 0 && (version & 0xFFFF) == 0) {
    reader.fail("version", "the file was written for machines of the other byte order");
  }
  if (version < kOldestVersion || version > GGUF_VERSION) {
    reader.fail("version", std::to_string(version) + " is not supported, only 2 and 3 are");
  }
  Header header;
  header.tensors = reader.read<std::uint64_t>("tensor count");
  header.keys = reader.read<std::uint64_t>("key count");
  const std::uint64_t room = reader.remaining();
  if (header.tensors > room / kMinTensorBytes) {
    reader.fail("tensor count", std::to_string(header.tensors) + " do not fit in the file");
  }
  if (header.keys > room / kMinKeyBytes) {
    reader.fail("key count", std::to_string(header.keys) + " do not fit in the file");
  }
  return header;
}

/// ggml compares names as C strings, so a zero byte would make it see another name than we do.
void check_name(const GgufReader& reader, const std::string& field, std::string_view name) {
  if (name.empty()) reader.fail(field, "empty name");
  if (name.find('\0') != std::string_view::npos) reader.fail(field, "zero byte in the name");
}

/// Bytes of a scalar type, 0 for strings, arrays and unknown types.
std::uint64_t scalar_size(gguf_type type) {
  switch (type) {
    case GGUF_TYPE_UINT8:
    case GGUF_TYPE_INT8:
    case GGUF_TYPE_BOOL:
      return 1;
    case GGUF_TYPE_UINT16:
    case GGUF_TYPE_INT16:
      return 2;
    case GGUF_TYPE_UINT32:
    case GGUF_TYPE_INT32:
    case GGUF_TYPE_FLOAT32:
      return 4;
    case GGUF_TYPE_UINT64:
    case GGUF_TYPE_INT64:
    case GGUF_TYPE_FLOAT64:
      return 8;
    default:
      return 0;
  }
}

gguf_type read_type(GgufReader& reader, const std::string& field, bool allow_array) {
  const auto raw = reader.read<std::uint32_t>(field);
  const bool known = raw < GGUF_TYPE_COUNT && (allow_array || raw != GGUF_TYPE_ARRAY);
  if (!known) reader.fail(field, "invalid value type " + std::to_string(raw));
  return static_cast<gguf_type>(raw);
}

/// Walks the elements of an array and returns their bytes.
void read_array(GgufReader& reader, const std::string& field, GgufValue& value) {
  value.element = read_type(reader, field, false);
  value.count = reader.read<std::uint64_t>(field);
  const std::uint64_t size =
      value.element == GGUF_TYPE_STRING ? sizeof(std::uint64_t) : scalar_size(value.element);
  if (value.count > reader.remaining() / size) {
    reader.fail(field, std::to_string(value.count) + " elements do not fit in the file");
  }
  if (value.element != GGUF_TYPE_STRING) {
    value.payload = reader.take(value.count * size, field);
    return;
  }
  GgufReader scout = reader;
  const std::uint64_t start = scout.offset();
  for (std::uint64_t i = 0; i < value.count; ++i) scout.read_string(field);
  value.payload = reader.take(scout.offset() - start, field);
}

GgufValue read_value(GgufReader& reader, const std::string& field) {
  GgufValue value;
  value.type = read_type(reader, field, true);
  value.element = value.type;
  if (value.is_array()) {
    read_array(reader, field, value);
  } else if (value.type == GGUF_TYPE_STRING) {
    const std::string_view text = reader.read_string(field);
    value.payload = std::as_bytes(std::span(text));
  } else {
    value.payload = reader.take(scalar_size(value.type), field);
  }
  return value;
}

GgufKeys read_keys(GgufReader& reader, std::uint64_t count) {
  GgufKeys keys;
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::string position = "key " + std::to_string(i);
    const std::string_view key = reader.read_string(position);
    check_name(reader, position, key);
    const std::string field = "key '" + printable(key) + "'";
    const GgufValue value = read_value(reader, field);
    if (!keys.emplace(key, value).second) reader.fail(field, "appears twice");
  }
  return keys;
}

std::uint64_t read_alignment(const GgufReader& reader, const GgufKeys& keys) {
  const std::string field = "key '" GGUF_KEY_GENERAL_ALIGNMENT "'";
  const auto found = keys.find(GGUF_KEY_GENERAL_ALIGNMENT);
  if (found == keys.end()) return GGUF_DEFAULT_ALIGNMENT;
  if (found->second.type != GGUF_TYPE_UINT32)
    reader.fail(field, "must be a 32-bit unsigned integer");
  const auto alignment = found->second.scalar<std::uint32_t>();
  if (alignment == 0 || (alignment & (alignment - 1)) != 0) {
    reader.fail(field, std::to_string(alignment) + " is not a power of two");
  }
  // ggml reads its vectors in place, so rows must start where the type's elements may.
  if (alignment < sizeof(std::uint64_t)) {
    reader.fail(field, std::to_string(alignment) + " is less than 8");
  }
  return alignment;
}

/// Where one tensor's data lies, relative to the data section.
struct TensorExtent {
  std::string field;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};

std::uint64_t read_tensor_bytes(GgufReader& reader, const std::string& field) {
  const auto num_dims = reader.read<std::uint32_t>(field);
  if (num_dims == 0 || num_dims > GGML_MAX_DIMS) {
    reader.fail(field, std::to_string(num_dims) + " dimensions, must be 1 to 4");
  }
  std::int64_t elements = 1;
  std::int64_t row = 0;
  for (std::uint32_t i = 0; i < num_dims; ++i) {
    const auto dim = reader.read<std::int64_t>(field);
    if (dim <= 0) reader.fail(field, "dimension " + std::to_string(dim) + " is not positive");
    if (dim > std::numeric_limits<std::int64_t>::max() / elements) {
      reader.fail(field, "the number of elements overflows");
    }
    elements *= dim;
    if (i == 0) row = dim;
  }
  const auto raw_type = reader.read<std::uint32_t>(field);
  const auto type = static_cast<ggml_type>(raw_type);
  // Types that ggml has dropped keep their number with a size of zero.
  if (raw_type >= GGML_TYPE_COUNT || ggml_blck_size(type) <= 0 || ggml_type_size(type) == 0) {
    reader.fail(field, "unknown tensor type " + std::to_string(raw_type));
  }
  const std::int64_t group = ggml_blck_size(type);
  if (row % group != 0) {
    reader.fail(field, "rows of " + std::to_string(row) + " elements are not a multiple of " +
                           std::to_string(group) + ", as " + ggml_type_name(type) + " needs");
  }
  const auto groups = static_cast<std::uint64_t>(elements / group);
  if (groups > std::numeric_limits<std::int64_t>::max() / ggml_type_size(type)) {
    reader.fail(field, "the size in bytes overflows");
  }
  return groups * ggml_type_size(type);
}

std::vector<TensorExtent> read_tensors(GgufReader& reader, std::uint64_t count) {
  std::vector<TensorExtent> tensors;
  std::unordered_set<std::string_view> names;
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::string position = "tensor " + std::to_string(i);
    const std::string_view name = reader.read_string(position);
    check_name(reader, position, name);
    TensorExtent tensor;
    tensor.field = "tensor '" + printable(name) + "'";
    if (name.size() >= GGML_MAX_NAME) reader.fail(tensor.field, "the name is too long");
    if (!names.insert(name).second) reader.fail(tensor.field, "appears twice");
    tensor.bytes = read_tensor_bytes(reader, tensor.field);
    tensor.offset = reader.read<std::uint64_t>(tensor.field);
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

/// Tensors must lie one behind the other in the table's order, each at a multiple of the alignment,
/// all of them inside the file. ggml reads no other layout.
void check_extents(const GgufReader& reader, const std::vector<TensorExtent>& tensors,
                   std::uint64_t alignment) {
  if (tensors.empty()) return;
  const std::uint64_t misaligned = reader.offset() % alignment;
  const std::uint64_t padding = misaligned == 0 ? 0 : alignment - misaligned;
  const std::uint64_t size = reader.remaining() < padding ? 0 : reader.remaining() - padding;
  std::uint64_t expected = 0;
  for (const TensorExtent& tensor : tensors) {
    if (tensor.offset % alignment != 0) {
      reader.fail(tensor.field, "offset " + std::to_string(tensor.offset) +
                                    " is not a multiple of the alignment " +
                                    std::to_string(alignment));
    }
    if (tensor.offset > size || tensor.bytes > size - tensor.offset) {
      reader.fail(tensor.field, "its data (" + std::to_string(tensor.bytes) + " bytes at " +
                                    std::to_string(tensor.offset) + ") ends past the " +
                                    std::to_string(size) +
                                    " bytes of the data section; the file may be truncated");
    }
    if (tensor.offset != expected) {
      reader.fail(tensor.field, "offset " + std::to_string(tensor.offset) + ", expected " +
                                    std::to_string(expected));
    }
    const std::uint64_t end = tensor.offset + tensor.bytes;
    const std::uint64_t past = end % alignment;
    expected = past == 0 ? end : end + (alignment - past);
  }
}

void check_general_keys(const GgufReader& reader, const GgufKeys& keys) {
  const auto architecture = keys.find("general.architecture");
  const std::string field = "key 'general.architecture'";
  if (architecture == keys.end()) reader.fail(field, "missing");
  if (architecture->second.type != GGUF_TYPE_STRING) reader.fail(field, "must be a string");
  const auto split = keys.find("split.count");
  if (split == keys.end()) return;
  if (split->second.type != GGUF_TYPE_UINT16) {
    reader.fail("key 'split.count'", "must be a 16-bit unsigned integer");
  }
  if (split->second.scalar<std::uint16_t>() > 1) {
    throw UnsupportedModel(reader.name() +
                           ": key 'split.count': models in several files are not supported; "
                           "merge them into one file");
  }
}

}  // namespace

void check_gguf_bytes(std::span<const std::byte> bytes, const std::string& name) {
  GgufReader reader(bytes, name);
  const Header header = read_header(reader);
  const GgufKeys keys = read_keys(reader, header.keys);
  const std::uint64_t alignment = read_alignment(reader, keys);
  const std::vector<TensorExtent> tensors = read_tensors(reader, header.tensors);
  check_extents(reader, tensors, alignment);
  check_general_keys(reader, keys);
  check_tokenizer_keys(keys, name);
}

void check_gguf(const std::string& path) {
  const MappedFile file(path);
  check_gguf_bytes({file.data(), file.size()}, path);
}

}  // namespace quest
