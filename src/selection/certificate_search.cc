// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "selection/certificate_search.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <limits>

namespace quest {

namespace {

/// A batch is this part of the list so far: few batches, little read in vain.
constexpr std::int32_t kBatchDivisor = 4;

/// Orders a heap of pages: the greatest bound on top, of equal ones the lower page.
struct WorseBound {
  const float* bounds;
  bool operator()(std::int32_t a, std::int32_t b) const {
    return bounds[a] != bounds[b] ? bounds[a] < bounds[b] : a > b;
  }
};

template <class T>
void grow_to(std::vector<T>& values, std::int64_t size) {
  if (static_cast<std::int64_t>(values.size()) < size) {
    values.resize(static_cast<std::size_t>(size));
  }
}

}  // namespace

void CertificateSearch::reserve(const Certificate& certificate, std::int32_t group,
                                std::int32_t num_pages, std::int32_t page_size) {
  certificate_ = certificate;
  group_ = group;
  capacity_ = std::max(capacity_, num_pages);
  grow_to(read_, (std::int64_t{capacity_} + 63) / 64);
  batch_.reserve(static_cast<std::size_t>(capacity_));
  grow_to(heaps_, std::int64_t{group} * capacity_);
  grow_to(heap_size_, group);
  grow_to(certified_, group);
  if (certificate.kind == CertificateKind::kTopR) {
    top_capacity_ = std::min<std::int64_t>(certificate.r, std::int64_t{capacity_} * page_size);
    grow_to(best_, group * top_capacity_);
    grow_to(best_size_, group);
  } else {
    grow_to(masses_, group);
    grow_to(weights_, std::int64_t{group} * capacity_);
  }
}

std::span<std::int32_t> CertificateSearch::heap(std::int32_t head) {
  return {heaps_.data() + std::int64_t{head} * capacity_,
          static_cast<std::size_t>(heap_size_[static_cast<std::size_t>(head)])};
}

std::span<double> CertificateSearch::best(std::int32_t head) {
  return {best_.data() + head * top_capacity_,
          static_cast<std::size_t>(best_size_[static_cast<std::size_t>(head)])};
}

bool CertificateSearch::is_read(std::int32_t page) const {
  return (read_[static_cast<std::size_t>(page / 64)] >> (page % 64) & 1) != 0;
}

void CertificateSearch::read(std::int32_t page) {
  if (is_read(page)) return;
  read_[static_cast<std::size_t>(page / 64)] |= std::uint64_t{1} << (page % 64);
  ++pages_read_;
  batch_.push_back(page);
  if (certificate_.kind != CertificateKind::kMass) return;
  for (std::int32_t h = 0; h < group_; ++h) masses_[static_cast<std::size_t>(h)].leave_out(page);
}

void CertificateSearch::read_everything() {
  for (std::int32_t p = 0; p < from_.forced.num_pages; ++p) {
    read_[static_cast<std::size_t>(p / 64)] |= std::uint64_t{1} << (p % 64);
  }
  pages_read_ = from_.forced.num_pages;
  batch_.clear();
  epsilon_ = 0;
}

void CertificateSearch::start(const SearchStart& start) {
  from_ = start;
  started_ = false;
  pages_read_ = 0;
  probed_ = 0;
  epsilon_ = 1;
  batch_.clear();
  std::fill_n(read_.begin(), (static_cast<std::size_t>(start.forced.num_pages) + 63) / 64, 0);
  for (std::int32_t h = 0; h < group_; ++h) {
    if (!(start.margins[h] < std::numeric_limits<double>::infinity())) return read_everything();
  }
  const std::int32_t candidates = start.forced.num_candidates();
  for (std::int32_t h = 0; h < group_; ++h) {
    const auto i = static_cast<std::size_t>(h);
    const float* const bounds = start.bounds + h * start.stride;
    heap_size_[i] = candidates;
    const auto pages = heap(h);
    for (std::int32_t c = 0; c < candidates; ++c) {
      pages[static_cast<std::size_t>(c)] = start.forced.sink_end + c;
    }
    std::make_heap(pages.begin(), pages.end(), WorseBound{bounds});
    if (certificate_.kind == CertificateKind::kTopR) {
      best_size_[i] = 0;
    } else {
      masses_[i].start({bounds, static_cast<std::size_t>(start.forced.num_pages)}, start.page_size,
                       start.scale, start.margins[h],
                       std::span(weights_).subspan(i * static_cast<std::size_t>(capacity_)));
    }
  }
}

std::int32_t CertificateSearch::pop(std::int32_t head) {
  const auto pages = heap(head);
  std::pop_heap(pages.begin(), pages.end(), WorseBound{from_.bounds + head * from_.stride});
  --heap_size_[static_cast<std::size_t>(head)];
  return pages.back();
}

/// As kPerHead selects, the tail page last.
void CertificateSearch::first_batch() {
  const ForcedPages& forced = from_.forced;
  for (std::int32_t p = 0; p < forced.sink_end; ++p) read(p);
  for (std::int32_t p = forced.recent_begin; p < forced.num_pages - 1; ++p) read(p);
  const std::int64_t free = from_.page_budget - forced.count();
  for (std::int32_t h = 0; h < group_; ++h) {
    for (std::int64_t i = 0; i < free; ++i) read(pop(h));
  }
  read(forced.num_pages - 1);
}

/// Brings a page that is not in the list to the top of the heap, or empties it.
void CertificateSearch::skip_read_pages(std::int32_t head) {
  while (heap_size_[static_cast<std::size_t>(head)] > 0 && is_read(heap(head).front())) pop(head);
}

/// A number that the head's R-th greatest q·k is not below.
double CertificateSearch::least_top(std::int32_t head) {
  const auto top = best(head);
  if (static_cast<std::int64_t>(top.size()) < certificate_.r) {
    return -std::numeric_limits<double>::infinity();
  }
  return top.front() - from_.margins[head];
}

/// Whether the best unread page may hold one of the R greatest.
bool CertificateSearch::reaches_top(std::int32_t head) {
  skip_read_pages(head);
  const auto pages = heap(head);
  if (pages.empty()) return false;
  return double{bound(head, pages.front())} + from_.margins[head] >= least_top(head);
}

/// Whether the head is certified.
bool CertificateSearch::check(std::int32_t head) {
  if (certificate_.kind == CertificateKind::kTopR) return !reaches_top(head);
  const double epsilon = masses_[static_cast<std::size_t>(head)].epsilon();
  epsilon_ = std::max(epsilon_, epsilon);
  return epsilon <= certificate_.epsilon;
}

void CertificateSearch::grow(std::int32_t head, std::int32_t pages) {
  for (std::int32_t i = 0; i < pages; ++i) {
    if (certificate_.kind == CertificateKind::kTopR && !reaches_top(head)) return;
    skip_read_pages(head);
    if (heap(head).empty()) return;
    read(pop(head));
  }
}

std::span<const std::int32_t> CertificateSearch::next_batch() {
  if (everything_read()) return {};
  batch_.clear();
  if (!started_) {
    started_ = true;
    first_batch();
  } else {
    epsilon_ = 0;
    const std::int32_t pages = std::max(1, pages_read_ / kBatchDivisor);
    for (std::int32_t h = 0; h < group_; ++h) {
      certified_[static_cast<std::size_t>(h)] = check(h) ? 1 : 0;
    }
    for (std::int32_t h = 0; h < group_; ++h) {
      if (certified_[static_cast<std::size_t>(h)] == 0) grow(h, pages);
    }
  }
  // The keys of the last pages can change nothing any more.
  if (everything_read()) {
    read_everything();
    return {};
  }
  probed_ += static_cast<std::int32_t>(batch_.size());
  return batch_;
}

void CertificateSearch::add_logits(std::int32_t head, std::span<const float> logits) {
  std::int64_t& size = best_size_[static_cast<std::size_t>(head)];
  for (const float logit : logits) {
    const auto top = best(head);
    if (size < certificate_.r) {
      ++size;
      const auto more = best(head);
      more.back() = logit;
      std::push_heap(more.begin(), more.end(), std::greater<>());
    } else if (double{logit} > top.front()) {
      std::pop_heap(top.begin(), top.end(), std::greater<>());
      top.back() = logit;
      std::push_heap(top.begin(), top.end(), std::greater<>());
    }
  }
}

void CertificateSearch::add_mass(std::int32_t head, float greatest, float sum) {
  masses_[static_cast<std::size_t>(head)].add_read(greatest, sum);
}

std::int32_t CertificateSearch::list(std::int32_t* pages) const {
  std::int32_t* end = pages;
  const auto words = (static_cast<std::size_t>(from_.forced.num_pages) + 63) / 64;
  for (std::size_t w = 0; w < words; ++w) {
    for (std::uint64_t bits = read_[w]; bits != 0; bits &= bits - 1) {
      *end++ = static_cast<std::int32_t>(w * 64) + std::countr_zero(bits);
    }
  }
  return static_cast<std::int32_t>(end - pages);
}

}  // namespace quest
