// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include <deque>
#include <initializer_list>
#include <limits>
#include <unordered_set>

#include "model/gguf_metadata.h"

namespace quest {
namespace {

// libllama's default special ids go up to 11; a smaller vocabulary would leave it without a
// begin-of-text token, on which it aborts.
constexpr std::uint64_t kMinTokens = 12;

class TokenizerKeys {
 public:
  TokenizerKeys(const GgufKeys& keys, const std::string& name) : keys_(keys), name_(name) {}

  [[noreturn]] void fail(std::string_view key, const std::string& problem) const {
    throw FileError(name_ + ": key '" + std::string(key) + "': " + problem);
  }
  const GgufValue* find(std::string_view key) const {
    const auto found = keys_.find(key);
    return found == keys_.end() ? nullptr : &found->second;
  }
  /// The value if it is there; it must then have this type.
  const GgufValue* optional(std::string_view key, gguf_type type) const {
    const GgufValue* value = find(key);
    if (value != nullptr && value->type != type) {
      fail(key, std::string("must be of type ") + gguf_type_name(type));
    }
    return value;
  }
  std::string_view text(std::string_view key) const {
    const GgufValue* value = optional(key, GGUF_TYPE_STRING);
    return value == nullptr ? std::string_view() : value->text();
  }
  bool flag(std::string_view key) const {
    const GgufValue* value = optional(key, GGUF_TYPE_BOOL);
    return value != nullptr && value->scalar<std::uint8_t>() != 0;
  }
  const GgufValue& array(std::string_view key, gguf_type element) const {
    const GgufValue* value = find(key);
    if (value == nullptr) fail(key, "missing");
    if (!value->is_array() || value->element != element) {
      fail(key, std::string("must be an array of ") + gguf_type_name(element));
    }
    return *value;
  }

 private:
  const GgufKeys& keys_;
  const std::string& name_;
};

/// libllama aborts when two tokens have the same text. It reads texts as C strings and invents one
/// for empty tokens.
void check_token_texts(const TokenizerKeys& keys, const GgufValue& tokens,
                       const std::string& name) {
  GgufReader reader(tokens.payload, name);
  std::unordered_set<std::string_view> texts;
  std::deque<std::string> invented;
  for (std::uint64_t i = 0; i < tokens.count; ++i) {
    std::string_view text = reader.read_string("tokenizer.ggml.tokens");
    text = text.substr(0, text.find('\0'));
    if (text.empty()) text = invented.emplace_back("[EMPTY_" + std::to_string(i) + "]");
    if (!texts.insert(text).second) {
      keys.fail("tokenizer.ggml.tokens", "token " + std::to_string(i) + " '" + printable(text) +
                                             "' has the text of an earlier token");
    }
  }
}

void check_parallel_array(const TokenizerKeys& keys, std::string_view key, std::uint64_t num_tokens,
                          std::initializer_list<gguf_type> elements) {
  const GgufValue* value = keys.find(key);
  if (value == nullptr) return;
  bool fits = false;
  for (const gguf_type element : elements) fits = fits || value->element == element;
  if (!value->is_array() || !fits) {
    keys.fail(key, std::string("must be an array of ") + gguf_type_name(*elements.begin()));
  }
  if (value->count != num_tokens) {
    keys.fail(key, std::to_string(value->count) + " elements for " + std::to_string(num_tokens) +
                       " tokens");
  }
}

/// Ids outside the vocabulary are common in published files (-1 for "none") and libllama passes
/// over them; only their type matters.
void check_special_ids(const TokenizerKeys& keys) {
  for (const std::string_view kind :
       {"bos", "eos", "eot", "eom", "unknown", "seperator", "padding", "cls", "mask", "fim_pre",
        "fim_suf", "fim_mid", "fim_pad", "fim_rep", "fim_sep", "prefix", "suffix", "middle"}) {
    keys.optional("tokenizer.ggml." + std::string(kind) + "_token_id", GGUF_TYPE_UINT32);
  }
}

/// libllama aborts if it shall add a special token that it does not have. Byte-pair vocabularies
/// have no conventional ids, so the file must name them.
void check_added_token(const TokenizerKeys& keys, const std::string& kind,
                       std::uint64_t num_tokens) {
  const std::string flag = "tokenizer.ggml.add_" + kind + "_token";
  const std::string id = "tokenizer.ggml." + kind + "_token_id";
  const GgufValue* value = keys.find(id);
  if (value == nullptr) keys.fail(flag, "is set without " + id);
  if (value->scalar<std::uint32_t>() >= num_tokens) {
    keys.fail(id, "is outside the vocabulary, but " + flag + " asks for it");
  }
}

}  // namespace

void check_tokenizer_keys(const GgufKeys& all, const std::string& name) {
  const TokenizerKeys keys(all, name);
  const std::string_view model = keys.text("tokenizer.ggml.model");
  if (keys.find("tokenizer.ggml.model") == nullptr) keys.fail("tokenizer.ggml.model", "missing");
  if (model != "llama" && model != "gpt2") {
    throw UnsupportedModel(name + ": key 'tokenizer.ggml.model': '" + printable(model) +
                           "' is not supported, only 'llama' and 'gpt2' are");
  }
  const GgufValue& tokens = keys.array("tokenizer.ggml.tokens", GGUF_TYPE_STRING);
  if (tokens.count < kMinTokens ||
      tokens.count > static_cast<std::uint64_t>(std::numeric_limits<std::int32_t>::max())) {
    keys.fail("tokenizer.ggml.tokens", std::to_string(tokens.count) + " tokens, at least " +
                                           std::to_string(kMinTokens) + " are needed");
  }
  check_token_texts(keys, tokens, name);
  check_parallel_array(keys, "tokenizer.ggml.scores", tokens.count,
                       {GGUF_TYPE_FLOAT32, GGUF_TYPE_INT32});
  check_parallel_array(keys, "tokenizer.ggml.token_type", tokens.count, {GGUF_TYPE_INT32});
  if (model == "gpt2") keys.array("tokenizer.ggml.merges", GGUF_TYPE_STRING);
  keys.optional("tokenizer.ggml.pre", GGUF_TYPE_STRING);
  keys.optional("tokenizer.chat_template", GGUF_TYPE_STRING);
  keys.optional("tokenizer.ggml.token_type_count", GGUF_TYPE_UINT32);
  for (const std::string_view flag :
       {"add_space_prefix", "remove_extra_whitespaces", "add_sep_token"}) {
    keys.flag("tokenizer.ggml." + std::string(flag));
  }
  check_special_ids(keys);
  const bool byte_pairs = model == "gpt2";
  for (const char* kind : {"bos", "eos"}) {
    const bool added = keys.flag("tokenizer.ggml.add_" + std::string(kind) + "_token");
    if (byte_pairs && added) check_added_token(keys, kind, tokens.count);
  }
}

}  // namespace quest
