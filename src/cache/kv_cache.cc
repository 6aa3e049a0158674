// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "quest/kv_cache.h"

#include <algorithm>
#include <limits>
#include <string>
#include <unordered_map>
#include <utility>

#include "cache/append.h"
#include "cache/page_memory.h"
#include "cache/page_pool.h"
#include "cache/token_pages.h"
#include "quest/error.h"
#include "quest/page_listener.h"

namespace quest {

namespace {

std::int64_t checked_product(std::int64_t a, std::int64_t b) {
  std::int64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) {
    throw InvalidArgument("cache shape: the size in bytes overflows 64 bits");
  }
  return product;
}

void require_one_of(std::int32_t value, std::initializer_list<std::int32_t> allowed,
                    const char* field) {
  if (std::find(allowed.begin(), allowed.end(), value) != allowed.end()) return;
  std::string list;
  for (std::int32_t choice : allowed) list += (list.empty() ? "" : ", ") + std::to_string(choice);
  throw InvalidArgument("cache shape: " + std::string(field) + " must be one of " + list +
                        ", not " + std::to_string(value));
}

void require_positive(std::int64_t value, const char* field) {
  if (value > 0 && value <= std::numeric_limits<std::int32_t>::max()) return;
  throw InvalidArgument("cache shape: " + std::string(field) +
                        " must be within 1..2147483647, not " + std::to_string(value));
}

void check_shape(const CacheShape& shape) {
  require_positive(shape.num_layers, "num_layers");
  require_positive(shape.num_kv_heads, "num_kv_heads");
  require_positive(shape.num_pages, "num_pages");
  require_one_of(shape.head_dim, {64, 80, 96, 128, 256}, "head_dim");
  require_one_of(shape.page_size, {8, 16, 32, 64}, "page_size");
  if (name_of(shape.type) == "?") throw InvalidArgument("cache shape: unknown type");
  if (name_of(shape.summary_type) == "?") {
    throw InvalidArgument("cache shape: unknown summary_type");
  }
}

/// Bytes of one layer's keys (as many as its values) and of its summaries.
struct LayerBytes {
  std::int64_t keys;
  std::int64_t summaries;
};

LayerBytes layer_bytes(const CacheShape& shape) {
  const std::int64_t heads = checked_product(shape.num_pages, shape.num_kv_heads);
  return {checked_product(heads, shape.page_bytes()),
          checked_product(heads, shape.summary_bytes())};
}

struct Sequence {
  std::vector<std::int32_t> pages;
  std::int64_t length = 0;
};

}  // namespace

struct KvCache::State {
  explicit State(const CacheShape& cache_shape)
      : shape(cache_shape),
        bytes(layer_bytes(cache_shape)),
        memory(planned_bytes(cache_shape)),
        pool(static_cast<std::int32_t>(cache_shape.num_pages)) {}

  Sequence& find(SequenceId id) {
    const auto it = sequences.find(id);
    if (it == sequences.end()) {
      throw InvalidArgument("KV cache: no sequence " + std::to_string(id));
    }
    return it->second;
  }

  SequenceId add(Sequence sequence) {
    const SequenceId id = next_id;
    sequences.emplace(id, std::move(sequence));
    ++next_id;
    return id;
  }

  /// Keys of all layers, then values of all layers, then summaries of all layers.
  PagedKv layer(std::int32_t index) const {
    std::byte* values = memory.data() + shape.num_layers * bytes.keys;
    std::byte* summaries = values + shape.num_layers * bytes.keys;
    return {memory.data() + index * bytes.keys, values + index * bytes.keys,
            summaries + index * bytes.summaries, shape};
  }

  std::int64_t pages_for(std::int64_t length) const {
    return (length + shape.page_size - 1) / shape.page_size;
  }

  /// A new page with everything that `page` holds.
  std::int32_t clone(std::int32_t page) {
    const std::int32_t copy = pool.acquire();
    for (std::int32_t i = 0; i < shape.num_layers; ++i) copy_page(layer(i), page, copy);
    if (listener != nullptr) listener->copied(page, copy);
    return copy;
  }

  /// Makes the summary of the last logical page that of its first `length` % page_size keys.
  void rebuild_tail_summary(const Sequence& sequence) {
    const std::int64_t start = sequence.length - sequence.length % shape.page_size;
    for (std::int32_t i = 0; i < shape.num_layers; ++i) {
      const PagedKv kv = layer(i);
      for (std::int32_t head = 0; head < shape.num_kv_heads; ++head) {
        fold_tokens(kv, head, sequence.pages, start, sequence.length - start);
      }
    }
    if (listener == nullptr) return;
    listener->cut(sequence.pages.back(), static_cast<std::int32_t>(sequence.length - start));
  }

  [[noreturn]] void out_of_pages(std::uint64_t needed) const {
    throw OutOfPages("KV cache is full: " + std::to_string(needed) + " pages of " +
                     std::to_string(shape.page_size) + " tokens needed, " +
                     std::to_string(pool.free_pages()) + " of " + std::to_string(shape.num_pages) +
                     " free; use a larger context or release a sequence");
  }

  void check_tokens(std::int32_t layer_index, std::int32_t kv_head, const Sequence& sequence,
                    std::int64_t position, std::int64_t count) const {
    if (layer_index < 0 || layer_index >= shape.num_layers) {
      throw InvalidArgument("KV cache: no layer " + std::to_string(layer_index));
    }
    if (kv_head < 0 || kv_head >= shape.num_kv_heads) {
      throw InvalidArgument("KV cache: no KV head " + std::to_string(kv_head));
    }
    if (position < 0 || count < 0 || count > sequence.length - position) {
      throw InvalidArgument("KV cache: " + std::to_string(count) + " tokens at position " +
                            std::to_string(position) + " are not within the " +
                            std::to_string(sequence.length) + " reserved ones");
    }
    for (std::int64_t p = position / shape.page_size; p < pages_for(position + count); ++p) {
      if (count > 0 && pool.count(sequence.pages[p]) > 1) {
        throw InvalidArgument("KV cache: position " + std::to_string(position) +
                              " lies in a page that other sequences share");
      }
    }
  }

  CacheShape shape;
  LayerBytes bytes;
  PageMemory memory;
  PagePool pool;
  std::unordered_map<SequenceId, Sequence> sequences;
  SequenceId next_id = 1;
  PageListener* listener = nullptr;
};

KvCache::KvCache(const CacheShape& shape) {
  check_shape(shape);
  state_ = std::make_unique<State>(shape);
}

KvCache::~KvCache() = default;

std::int64_t KvCache::planned_bytes(const CacheShape& shape) {
  check_shape(shape);
  const LayerBytes bytes = layer_bytes(shape);
  const std::int64_t keys_and_values = checked_product(bytes.keys, 2);
  std::int64_t layer = 0;
  if (__builtin_add_overflow(keys_and_values, bytes.summaries, &layer)) {
    throw InvalidArgument("cache shape: the size in bytes overflows 64 bits");
  }
  return checked_product(layer, shape.num_layers);
}

const CacheShape& KvCache::shape() const { return state_->shape; }

PagedKv KvCache::layer(std::int32_t layer) const {
  if (layer < 0 || layer >= state_->shape.num_layers) {
    throw InvalidArgument("KV cache: no layer " + std::to_string(layer));
  }
  return state_->layer(layer);
}

SequenceId KvCache::create() { return state_->add({}); }

SequenceId KvCache::fork(SequenceId parent) {
  const SequenceId id = state_->add(state_->find(parent));
  for (std::int32_t page : state_->find(id).pages) state_->pool.retain(page);
  return id;
}

SequenceId KvCache::fork_prefix(SequenceId parent, std::int64_t length) {
  State& state = *state_;
  const Sequence& source = state.find(parent);
  if (length < 0 || length > source.length) {
    throw InvalidArgument("KV cache: prefix of " + std::to_string(length) +
                          " tokens of a sequence that has " + std::to_string(source.length));
  }
  if (length == source.length) return fork(parent);
  const bool cut = length % state.shape.page_size != 0;
  if (cut && state.pool.free_pages() == 0) state.out_of_pages(1);

  Sequence prefix;
  prefix.length = length;
  prefix.pages.assign(source.pages.begin(), source.pages.begin() + state.pages_for(length));
  const SequenceId id = state.add(std::move(prefix));
  Sequence& added = state.find(id);
  const std::size_t shared = added.pages.size() - (cut ? 1 : 0);
  for (std::size_t i = 0; i < shared; ++i) state.pool.retain(added.pages[i]);
  if (cut) {
    added.pages.back() = state.clone(added.pages.back());
    state.rebuild_tail_summary(added);
  }
  return id;
}

void KvCache::truncate(SequenceId id, std::int64_t length) {
  State& state = *state_;
  Sequence& sequence = state.find(id);
  if (length < 0 || length > sequence.length) {
    throw InvalidArgument("KV cache: cannot truncate a sequence of " +
                          std::to_string(sequence.length) + " tokens to " + std::to_string(length));
  }
  if (length == sequence.length) return;

  const auto kept = sequence.pages.begin() + state.pages_for(length);
  const bool cut = length % state.shape.page_size != 0;
  const bool copy = cut && state.pool.count(*(kept - 1)) > 1;
  // A page that this very call frees will do for the copy.
  const bool frees = std::any_of(kept, sequence.pages.end(),
                                 [&](std::int32_t page) { return state.pool.count(page) == 1; });
  if (copy && !frees && state.pool.free_pages() == 0) state.out_of_pages(1);

  for (auto page = kept; page != sequence.pages.end(); ++page) state.pool.release(*page);
  sequence.pages.erase(kept, sequence.pages.end());
  sequence.length = length;
  if (!cut) return;
  if (copy) {
    const std::int32_t shared = sequence.pages.back();
    sequence.pages.back() = state.clone(shared);
    state.pool.release(shared);
  }
  state.rebuild_tail_summary(sequence);
}

void KvCache::release(SequenceId id) {
  for (std::int32_t page : state_->find(id).pages) state_->pool.release(page);
  state_->sequences.erase(id);
}

void KvCache::reserve(SequenceId id, std::int64_t count) {
  State& state = *state_;
  Sequence& sequence = state.find(id);
  if (count < 0) {
    throw InvalidArgument("KV cache: cannot reserve " + std::to_string(count) + " tokens");
  }
  if (count == 0) return;

  const auto page_size = static_cast<std::uint64_t>(state.shape.page_size);
  const bool open_tail = sequence.length % state.shape.page_size != 0;
  const bool copy = open_tail && state.pool.count(sequence.pages.back()) > 1;
  // Unsigned: a length of at most 2^37 and any count fit.
  const std::uint64_t length =
      static_cast<std::uint64_t>(sequence.length) + static_cast<std::uint64_t>(count);
  const std::uint64_t grown = (length + page_size - 1) / page_size - sequence.pages.size();
  const std::uint64_t needed = grown + (copy ? 1 : 0);
  if (needed > static_cast<std::uint64_t>(state.pool.free_pages())) state.out_of_pages(needed);

  // Memory first: from here on nothing can fail.
  if (sequence.pages.capacity() < sequence.pages.size() + grown) {
    sequence.pages.reserve(std::max(sequence.pages.size() + grown, 2 * sequence.pages.size()));
  }
  if (copy) {
    const std::int32_t shared = sequence.pages.back();
    sequence.pages.back() = state.clone(shared);
    state.pool.release(shared);
  }
  for (std::uint64_t i = 0; i < grown; ++i) sequence.pages.push_back(state.pool.acquire());
  sequence.length += count;
}

void KvCache::append(std::int32_t layer, std::int32_t kv_head, SequenceId id, std::int64_t position,
                     std::int64_t count, const float* k, std::int64_t k_stride, const float* v,
                     std::int64_t v_stride) {
  const Sequence& sequence = state_->find(id);
  state_->check_tokens(layer, kv_head, sequence, position, count);
  store_tokens(state_->layer(layer), kv_head, sequence.pages, position, count, k, k_stride, v,
               v_stride);
  if (state_->listener == nullptr) return;
  for_each_page(state_->shape.page_size, sequence.pages, position, count,
                [&](std::int32_t page, std::int64_t slot, std::int64_t slots, std::int64_t) {
                  state_->listener->stored(page, static_cast<std::int32_t>(slot),
                                           static_cast<std::int32_t>(slots));
                });
}

void KvCache::summarise(std::int32_t layer, std::int32_t kv_head, SequenceId id,
                        std::int64_t position, std::int64_t count) {
  const Sequence& sequence = state_->find(id);
  state_->check_tokens(layer, kv_head, sequence, position, count);
  fold_tokens(state_->layer(layer), kv_head, sequence.pages, position, count);
}

bool KvCache::contains(SequenceId sequence) const { return state_->sequences.contains(sequence); }

std::int64_t KvCache::length(SequenceId sequence) const { return state_->find(sequence).length; }

std::span<const std::int32_t> KvCache::pages(SequenceId sequence) const {
  return state_->find(sequence).pages;
}

void KvCache::listen(PageListener* listener) {
  if (listener != nullptr && state_->listener != nullptr) {
    throw InvalidArgument("KV cache: another backend keeps a copy of its pages already");
  }
  state_->listener = listener;
}

std::int64_t KvCache::free_pages() const { return state_->pool.free_pages(); }

std::int32_t KvCache::reference_count(std::int32_t page) const {
  if (page < 0 || page >= state_->pool.num_pages()) {
    throw InvalidArgument("KV cache: no page " + std::to_string(page));
  }
  return state_->pool.count(page);
}

}  // namespace quest
