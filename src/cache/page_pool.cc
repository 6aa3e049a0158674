// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "cache/page_pool.h"

#include <bit>
#include <stdexcept>
#include <string>

namespace quest {

namespace {

constexpr std::uint64_t bit(std::size_t index) { return std::uint64_t{1} << (index % 64); }
constexpr std::size_t words_for(std::size_t bits) { return (bits + 63) / 64; }

/// `count` set bits, zeros behind them.
std::vector<std::uint64_t> ones(std::size_t count) {
  std::vector<std::uint64_t> words(words_for(count), ~std::uint64_t{0});
  if (count % 64 != 0) words.back() = bit(count) - 1;
  return words;
}

}  // namespace

PagePool::PagePool(std::int32_t num_pages)
    : counts_(static_cast<std::size_t>(num_pages), 0),
      free_(ones(static_cast<std::size_t>(num_pages))),
      words_(ones(free_.size())),
      free_pages_(num_pages) {}

std::int32_t PagePool::acquire() {
  for (std::size_t i = 0; i < words_.size(); ++i) {
    if (words_[i] == 0) continue;
    const std::size_t word = i * 64 + static_cast<std::size_t>(std::countr_zero(words_[i]));
    const std::size_t page = word * 64 + static_cast<std::size_t>(std::countr_zero(free_[word]));
    free_[word] &= ~bit(page);
    if (free_[word] == 0) words_[i] &= ~bit(word);
    counts_[page] = 1;
    --free_pages_;
    return static_cast<std::int32_t>(page);
  }
  throw std::logic_error("page pool: acquire without a free page");
}

void PagePool::retain(std::int32_t page) {
  if (counts_[page] == 0) {
    throw std::logic_error("page pool: retain of free page " + std::to_string(page));
  }
  ++counts_[page];
}

void PagePool::release(std::int32_t page) {
  if (counts_[page] == 0) {
    throw std::logic_error("page pool: release of free page " + std::to_string(page));
  }
  if (--counts_[page] > 0) return;
  const auto index = static_cast<std::size_t>(page);
  free_[index / 64] |= bit(index);
  words_[index / 64 / 64] |= bit(index / 64);
  ++free_pages_;
}

}  // namespace quest
