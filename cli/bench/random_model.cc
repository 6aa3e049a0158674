// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "bench/random_model.h"

#include <ggml-cpp.h>
#include <gguf.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <thread>
#include <vector>

#include "bench/random_tokenizer.h"
#include "bench/random_values.h"
#include "interrupt.h"
#include "output.h"

namespace quest::cli {
namespace {

/// A tensor to come.
struct Weight {
  std::string name;
  std::int64_t width = 0;
  std::int64_t rows = 1;
  float deviation = 0;  ///< 0: constant
  float mean = 0;
  bool rope_factors = false;
  bool matrix() const { return rows > 1; }
};

// Deviations such that activations stay of the size one from layer to layer.
std::vector<Weight> weights_of(const ModelShape& shape, std::int64_t vocabulary) {
  std::vector<Weight> weights;
  const std::int64_t dim = shape.embedding;
  const std::int64_t inner = shape.feed_forward;
  const std::int64_t wide = std::int64_t{shape.q_heads} * shape.head_dim;
  const std::int64_t narrow = std::int64_t{shape.kv_heads} * shape.head_dim;
  const auto matrix = [&](const std::string& name, std::int64_t in, std::int64_t out) {
    weights.push_back({name, in, out, 1.0F / std::sqrt(static_cast<float>(in))});
  };
  const auto norm = [&](const std::string& name, std::int64_t size) {
    weights.push_back({name, size, 1, 0, 1});
  };
  const auto bias = [&](const std::string& name, std::int64_t size) {
    weights.push_back({name, size, 1, 0.1F});
  };
  matrix("token_embd.weight", dim, vocabulary);
  norm("output_norm.weight", dim);
  if (!shape.tied) matrix("output.weight", dim, vocabulary);
  if (shape.llama3_factor > 0) {
    weights.push_back({"rope_freqs.weight", shape.head_dim / 2, 1, 0, 1, true});
  }
  const std::string architecture = shape.architecture;
  for (std::int32_t i = 0; i < shape.layers; ++i) {
    const std::string layer = "blk." + std::to_string(i) + ".";
    norm(layer + "attn_norm.weight", dim);
    matrix(layer + "attn_q.weight", dim, wide);
    matrix(layer + "attn_k.weight", dim, narrow);
    matrix(layer + "attn_v.weight", dim, narrow);
    matrix(layer + "attn_output.weight", wide, dim);
    if (architecture == "qwen2") {
      bias(layer + "attn_q.bias", wide);
      bias(layer + "attn_k.bias", narrow);
      bias(layer + "attn_v.bias", narrow);
    }
    if (architecture == "qwen3") {
      norm(layer + "attn_q_norm.weight", shape.head_dim);
      norm(layer + "attn_k_norm.weight", shape.head_dim);
    }
    norm(layer + "ffn_norm.weight", dim);
    matrix(layer + "ffn_gate.weight", dim, inner);
    matrix(layer + "ffn_up.weight", dim, inner);
    matrix(layer + "ffn_down.weight", inner, dim);
  }
  return weights;
}

// Llama 3's divisors of the rotated pairs: 1 for short waves, `factor` for waves longer than the
// original context, a blend between.
std::vector<float> llama3_factors(const ModelShape& shape) {
  constexpr float kOriginalContext = 8192;
  constexpr float kLow = 1;
  constexpr float kHigh = 4;
  std::vector<float> factors;
  for (std::int32_t i = 0; i < shape.head_dim / 2; ++i) {
    const float wave = 2 * std::numbers::pi_v<float> *
                       std::pow(shape.freq_base,
                                2.0F * static_cast<float>(i) / static_cast<float>(shape.head_dim));
    const float share = (kOriginalContext / wave - kLow) / (kHigh - kLow);
    const float fast = std::clamp(share, 0.0F, 1.0F);
    factors.push_back(1.0F / ((1 - fast) / shape.llama3_factor + fast));
  }
  return factors;
}

void set_keys(gguf_context* gguf, const RandomModelOptions& options,
              const RandomModelResult& result) {
  const ModelShape& shape = *options.shape;
  const std::string prefix = std::string(shape.architecture) + ".";
  const auto integer = [&](const char* name, std::int64_t value) {
    gguf_set_val_u32(gguf, (prefix + name).c_str(), static_cast<std::uint32_t>(value));
  };
  gguf_set_val_str(gguf, "general.architecture", shape.architecture);
  gguf_set_val_str(gguf, "general.name", result.name.c_str());
  gguf_set_val_u32(gguf, "general.alignment", GGUF_DEFAULT_ALIGNMENT);
  integer("vocab_size", result.vocabulary);
  integer("block_count", shape.layers);
  integer("context_length", result.context);
  integer("embedding_length", shape.embedding);
  integer("feed_forward_length", shape.feed_forward);
  integer("attention.head_count", shape.q_heads);
  integer("attention.head_count_kv", shape.kv_heads);
  integer("attention.key_length", shape.head_dim);
  integer("attention.value_length", shape.head_dim);
  integer("rope.dimension_count", shape.head_dim);
  gguf_set_val_f32(gguf, (prefix + "attention.layer_norm_rms_epsilon").c_str(), shape.rms_epsilon);
  gguf_set_val_f32(gguf, (prefix + "rope.freq_base").c_str(), shape.freq_base);
}

/// Makes a tensor's bytes piece by piece, each piece by all threads, and writes them.
class WeightWriter {
 public:
  WeightWriter(NewFile& file, const RandomModelOptions& options) : file_(file), options_(options) {}

  // False after Ctrl-C.
  bool write(const Weight& weight, ggml_type type, std::uint64_t seed) {
    const std::int64_t rows_at_once =
        std::max<std::int64_t>(1, kPieceElements / weight.width) * options_.threads;
    const std::size_t row_bytes = ggml_row_size(type, weight.width);
    for (std::int64_t row = 0; row < weight.rows; row += rows_at_once) {
      if (interrupted()) return false;
      const std::int64_t rows = std::min(rows_at_once, weight.rows - row);
      bytes_.resize(row_bytes * static_cast<std::size_t>(rows));
      make_rows(weight, type, seed, row, rows);
      write_bytes(bytes_);
    }
    const std::size_t size = row_bytes * static_cast<std::size_t>(weight.rows);
    write_bytes(std::vector<char>(GGML_PAD(size, GGUF_DEFAULT_ALIGNMENT) - size, '\0'));
    return true;
  }
  std::int64_t written() const { return written_; }

 private:
  static constexpr std::int64_t kPieceElements = std::int64_t{1} << 20;

  void write_bytes(const std::vector<char>& bytes) {
    file_.write({bytes.data(), bytes.size()});
    written_ += static_cast<std::int64_t>(bytes.size());
  }

  void make_rows(const Weight& weight, ggml_type type, std::uint64_t seed, std::int64_t first,
                 std::int64_t rows) {
    const std::int64_t share = (rows + options_.threads - 1) / options_.threads;
    std::vector<std::thread> others;
    for (std::int64_t begin = 0; begin < rows; begin += share) {
      others.emplace_back([=, this, &weight] {
        const std::int64_t count = std::min(share, rows - begin);
        const auto size = static_cast<std::size_t>(count * weight.width);
        std::vector<float> values(size, weight.mean);
        const std::int64_t place = (first + begin) * weight.width;
        if (weight.rope_factors) values = llama3_factors(*options_.shape);
        if (weight.deviation > 0) {
          fill_uniform(values, weight.deviation, seed, static_cast<std::uint64_t>(place));
        }
        ggml_quantize_chunk(
            type, values.data(),
            bytes_.data() + begin * static_cast<std::int64_t>(ggml_row_size(type, weight.width)), 0,
            count, weight.width, nullptr);
      });
    }
    for (std::thread& other : others) other.join();
  }

  NewFile& file_;
  const RandomModelOptions& options_;
  std::vector<char> bytes_;
  std::int64_t written_ = 0;
};

/// The file's header: keys and the table of tensors, no data.
struct Header {
  gguf_context_ptr gguf{gguf_init_empty()};
  ggml_context_ptr tensors;

  void add(const std::vector<Weight>& weights, ggml_type type) {
    const ggml_init_params params = {(weights.size() + 1) * ggml_tensor_overhead(), nullptr, true};
    tensors.reset(ggml_init(params));
    for (const Weight& weight : weights) {
      const ggml_type stored = weight.matrix() ? type : GGML_TYPE_F32;
      ggml_tensor* const tensor =
          weight.matrix() ? ggml_new_tensor_2d(tensors.get(), stored, weight.width, weight.rows)
                          : ggml_new_tensor_1d(tensors.get(), stored, weight.width);
      ggml_set_name(tensor, weight.name.c_str());
      gguf_add_tensor(gguf.get(), tensor);
    }
  }
  std::string bytes() const {
    std::string bytes(gguf_get_meta_size(gguf.get()), '\0');
    gguf_get_meta_data(gguf.get(), bytes.data());
    return bytes;
  }
};

}  // namespace

RandomModelResult write_random_model(const RandomModelOptions& options) {
  const ModelShape& shape = *options.shape;
  RandomModelResult result;
  Header header;
  const PaddedTokenizer tokenizer =
      copy_tokenizer(header.gguf.get(), options.tokenizer, shape.vocabulary);
  result.vocabulary = tokenizer.vocabulary;
  result.context = options.context > 0 ? options.context : shape.context;
  result.name = std::string(shape.name) + " shape, random weights, " + tokenizer.description;
  set_keys(header.gguf.get(), options, result);
  const std::vector<Weight> weights = weights_of(shape, result.vocabulary);
  header.add(weights, options.type);
  const std::string meta = header.bytes();
  result.bytes = static_cast<std::int64_t>(meta.size());
  for (const Weight& weight : weights) {
    const ggml_type type = weight.matrix() ? options.type : GGML_TYPE_F32;
    const auto size = ggml_row_size(type, weight.width) * static_cast<std::size_t>(weight.rows);
    result.bytes += static_cast<std::int64_t>(GGML_PAD(size, GGUF_DEFAULT_ALIGNMENT));
    result.parameters += weight.width * weight.rows;
  }

  NewFile file(options.path, result.bytes, "--out");
  file.write(meta);
  WeightWriter writer(file, options);
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const ggml_type type = weights[i].matrix() ? options.type : GGML_TYPE_F32;
    if (!writer.write(weights[i], type, i)) return result;
  }
  file.finish();
  result.complete = true;
  return result;
}

}  // namespace quest::cli
