// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "attention/cuda/kernels/rows-inl.h"
#include "attention/cuda/kernels/warp-inl.h"

// select: from scores to the list of pages that a (row, KV head) reads. After a platform header.

namespace quest::cuda {

inline constexpr int kSelectThreads = 256;
inline constexpr int kSelectWarps = kSelectThreads / kWarp;
inline constexpr int kDigitBits = 8;
inline constexpr int kDigits = 1 << kDigitBits;

struct SelectShared {
  std::uint32_t keys[kSelectKeys];
  std::uint32_t taken[kMaxScoredPages / kWarp];  ///< a bit for each candidate
  int histogram[kDigits];
  int warps[kSelectWarps];
  std::uint32_t low;
  std::uint32_t high;
  std::uint32_t digit;
  int above;  ///< keys of the range that lie above the digit's
};

/// What is known of a threshold: the bits of its distance from the least key, but for the lowest.
struct Search {
  std::uint32_t low = 0;
  std::uint32_t prefix = 0;
  int open_bits = 0;
};

/// What a key needs to be among the best: be above `key`, or be one of the first `ties` that equal
/// it.
struct Threshold {
  std::uint32_t key = 0;
  int ties = 0;
};

/// Scores as unsigned keys of the same order; equal scores, +0 and -0 too, have equal keys.
__device__ inline std::uint32_t order_key(float score) {
  const std::uint32_t bits = __float_as_uint(score + 0.0F);
  return bits ^ ((bits >> 31) != 0 ? 0xFFFFFFFFU : 0x80000000U);
}

/// Joins the bounds that the threads of a block have found into two shared ones.
__device__ inline void join_key_range(std::uint32_t low, std::uint32_t high, std::uint32_t& all_low,
                                      std::uint32_t& all_high) {
  QUEST_UNROLL
  for (int mask = kWarp / 2; mask > 0; mask /= 2) {
    const std::uint32_t other_low = __shfl_xor_sync(kAllLanes, low, mask);
    const std::uint32_t other_high = __shfl_xor_sync(kAllLanes, high, mask);
    low = other_low < low ? other_low : low;
    high = other_high > high ? other_high : high;
  }
  if (thread_of_block() % kWarp == 0) {
    atomicMin(&all_low, low);
    atomicMax(&all_high, high);
  }
}

/// Key that no score has: of candidates that are out of the choice.
inline constexpr std::uint32_t kOutOfChoice = 0;

/// The candidates of one (row, KV head), by one row of scores or by the maximum of several; only
/// those not taken yet if `distinct`.
class Candidates {
 public:
  __device__ Candidates(const float* scores, std::int64_t stride, int rows, std::int32_t count,
                        bool distinct, SelectShared& shared)
      : scores_(scores),
        stride_(stride),
        rows_(rows),
        count_(count),
        distinct_(distinct),
        shared_(shared) {}

  __device__ std::int32_t count() const { return count_; }
  __device__ std::uint32_t key(std::int32_t i) const {
    return count_ <= kSelectKeys ? shared_.keys[i] : make_key(i);
  }

  /// Makes the keys and finds what they lie between. All threads of the block take part.
  __device__ void make_keys() {
    if (thread_of_block() == 0) {
      shared_.low = 0xFFFFFFFFU;
      shared_.high = 0;
    }
    __syncthreads();
    std::uint32_t low = 0xFFFFFFFFU;
    std::uint32_t high = 0;
    for (std::int32_t i = thread_of_block(); i < count_; i += kSelectThreads) {
      const std::uint32_t key = make_key(i);
      if (count_ <= kSelectKeys) shared_.keys[i] = key;
      low = key < low && key != kOutOfChoice ? key : low;
      high = key > high ? key : high;
    }
    join_key_range(low, high, shared_.low, shared_.high);
    __syncthreads();
  }
  /// Takes those of a word of 32 candidates whose bits are set. One warp.
  __device__ void take(std::int32_t word, std::uint32_t bits) const {
    if (thread_of_block() % kWarp == 0) shared_.taken[word] |= bits;
  }

 private:
  __device__ std::uint32_t make_key(std::int32_t i) const {
    if (distinct_ && (shared_.taken[i / kWarp] >> (i % kWarp) & 1U) != 0) return kOutOfChoice;
    std::uint32_t most = 0;
    for (int r = 0; r < rows_; ++r) {
      const std::uint32_t key = order_key(scores_[r * stride_ + i]);
      most = key > most ? key : most;
    }
    return most;
  }

  const float* scores_;
  std::int64_t stride_;
  int rows_;
  std::int32_t count_;
  bool distinct_;
  SelectShared& shared_;
};

/// The digit that holds the k-th greatest of the keys in `histogram`, and how many lie above it.
__device__ inline void find_digit(SelectShared& shared, int k) {
  // Thread t looks at digit kDigits - 1 - t: sums over the threads before are sums from above.
  static_assert(kSelectThreads == kDigits);
  const int digit = kDigits - 1 - thread_of_block();
  const int count = shared.histogram[digit];
  int total = 0;
  const int above = block_sum_before<kSelectThreads>(count, shared.warps, total);
  if (above < k && k <= above + count) {
    shared.digit = static_cast<std::uint32_t>(digit);
    shared.above = above;
  }
  __syncthreads();
}

/// Threshold of the k greatest keys of those that have the known bits: radix select on the distance
/// from the least key, whose leading digits spread better than those of the keys. There are k.
template <class Keys>
__device__ inline Threshold find_threshold(const Keys& candidates, const Search& known, int k,
                                           SelectShared& shared) {
  const std::uint32_t low = known.low;
  std::uint32_t prefix = known.prefix;
  int shift = known.open_bits;
  while (shift > 0) {
    const int bits = shift < kDigitBits ? shift : kDigitBits;
    const int next = shift - bits;
    shared.histogram[thread_of_block()] = 0;
    __syncthreads();
    for (std::int32_t i = thread_of_block(); i < candidates.count(); i += kSelectThreads) {
      const std::uint32_t key = candidates.key(i);
      if (key < low) continue;  // out of the choice
      const std::uint32_t distance = key - low;
      // A shift by all 32 bits is not defined.
      if ((static_cast<std::uint64_t>(distance) >> shift) != prefix) continue;
      atomicAdd(&shared.histogram[distance >> next & ((1U << bits) - 1)], 1);
    }
    __syncthreads();
    find_digit(shared, k);
    const std::uint32_t digit = shared.digit;
    k -= shared.above;
    prefix = prefix << bits | digit;
    shift = next;
    const bool all = shared.histogram[digit] == k;
    __syncthreads();  // the histogram is cleared next
    // All keys of this digit are among the best, whatever the bits below: just under its least.
    if (all && prefix > 0) return {low + (prefix << shift) - 1, 0};
  }
  return {low + prefix, k};
}

/// Takes the keys that pass. Every warp has a run of words of its own, so that ties go to the lower
/// pages whatever the timing (SPEC S4.8).
template <class Keys>
__device__ inline void mark_passing(const Keys& candidates, const Threshold& threshold,
                                    SelectShared& shared) {
  const int lane = thread_of_block() % kWarp;
  const int warp = thread_of_block() / kWarp;
  const std::int32_t words = (candidates.count() + kWarp - 1) / kWarp;
  const std::int32_t per_warp = (words + kSelectWarps - 1) / kSelectWarps;
  const std::int32_t first = warp * per_warp;
  const std::int32_t end = first + per_warp < words ? first + per_warp : words;
  const auto key_at = [&](std::int32_t word) {
    const std::int32_t i = word * kWarp + lane;
    return i < candidates.count() ? candidates.key(i) : 0U;
  };
  // Keys past the end equal no threshold with ties: that is some candidate's key.
  const auto equals = [&](std::int32_t word, std::uint32_t key) {
    return word * kWarp + lane < candidates.count() && key == threshold.key;
  };

  int equal = 0;
  for (std::int32_t word = first; word < end; ++word) {
    equal += __popc(__ballot_sync(kAllLanes, equals(word, key_at(word)) ? 1 : 0));
  }
  if (lane == 0) shared.warps[warp] = equal;
  __syncthreads();
  int left = threshold.ties;
  for (int i = 0; i < warp; ++i) left -= shared.warps[i];
  for (std::int32_t word = first; word < end; ++word) {
    const std::uint32_t key = key_at(word);
    const std::uint32_t ties = __ballot_sync(kAllLanes, equals(word, key) ? 1 : 0);
    const int before = __popc(ties & ((1U << lane) - 1));
    const bool pass = key > threshold.key || (equals(word, key) && before < left);
    const std::uint32_t taken = __ballot_sync(kAllLanes, pass ? 1 : 0);
    candidates.take(word, taken);
    left -= __popc(ties);
  }
  __syncthreads();
}

/// Takes the k best candidates.
__device__ inline void take_best(Candidates candidates, int k, SelectShared& shared) {
  candidates.make_keys();
  const std::uint32_t low = shared.low;
  const int open_bits = kWarp - __clz(static_cast<int>(shared.high - low));
  mark_passing(candidates, find_threshold(candidates, {low, 0, open_bits}, k, shared), shared);
}

/// Number of the lowest bit that is set.
__device__ inline int lowest_bit(std::uint32_t bits) { return __popc((bits & (~bits + 1)) - 1); }

/// Writes sinks, candidates taken, window and tail, ascending; returns how many.
__device__ inline std::int32_t list_pages(const ForcedPages& forced, SelectShared& shared,
                                          std::int32_t* list) {
  const std::int32_t words = (forced.num_candidates() + kWarp - 1) / kWarp;
  const std::int32_t per_thread = (words + kSelectThreads - 1) / kSelectThreads;
  const std::int32_t first = thread_of_block() * per_thread;
  const std::int32_t end = first + per_thread < words ? first + per_thread : words;
  int count = 0;
  for (std::int32_t word = first; word < end; ++word) count += __popc(shared.taken[word]);
  int total = 0;
  std::int32_t* out =
      list + forced.sink_end + block_sum_before<kSelectThreads>(count, shared.warps, total);
  for (std::int32_t word = first; word < end; ++word) {
    for (std::uint32_t bits = shared.taken[word]; bits != 0; bits &= bits - 1) {
      *out++ = forced.sink_end + word * kWarp + lowest_bit(bits);
    }
  }
  for (std::int32_t p = thread_of_block(); p < forced.sink_end; p += kSelectThreads) list[p] = p;
  const std::int32_t recent = forced.sink_end + total - forced.recent_begin;
  for (std::int32_t p = forced.recent_begin + thread_of_block(); p < forced.num_pages;
       p += kSelectThreads) {
    list[recent + p] = p;
  }
  return recent + forced.num_pages;
}

/// Whether a score is NaN, forced pages included: theirs never matter, but must not hide.
__device__ inline bool any_nan(const LayerArgs& args, const float* scores, std::int32_t num_pages) {
  bool nan = false;
  for (int r = 0; r < args.score_rows; ++r) {
    for (std::int32_t p = thread_of_block(); p < num_pages; p += kSelectThreads) {
      const float score = scores[r * args.scores_stride + p];
      nan = nan || score != score;
    }
  }
  return __syncthreads_or(nan ? 1 : 0) != 0;
}

/// Takes k candidates as the group mode says: each query head its k best, each a private share and
/// the mean over heads the rest, or the best by one score a page.
__device__ inline void take_candidates(const LayerArgs& args, const float* scores, int k,
                                       const ForcedPages& forced, SelectShared& shared) {
  const bool quota = args.mode == GroupMode::kQuota;
  const bool by_row = quota || args.mode == GroupMode::kPerHead;
  const int share = quota ? k / 2 / args.group : k;
  for (int r = 0; r < (by_row ? args.score_rows : 1); ++r) {
    const int picks = quota && r == args.group ? k - share * args.group : share;
    if (picks == 0) continue;
    take_best(Candidates(scores + r * args.scores_stride + forced.sink_end, args.scores_stride,
                         by_row ? 1 : args.score_rows, forced.num_candidates(), quota, shared),
              picks, shared);
  }
}

__device__ inline void clear_taken(const ForcedPages& forced, SelectShared& shared) {
  const std::int32_t words = (forced.num_candidates() + kWarp - 1) / kWarp;
  for (std::int32_t w = thread_of_block(); w < words; w += kSelectThreads) shared.taken[w] = 0;
}

/// Writes the list of a (row, KV head) from what was taken, and reports it. `nan`: a score was.
__device__ inline void write_list(const LayerArgs& args, std::int32_t index, std::int32_t head,
                                  const ForcedPages& forced, bool nan, SelectShared& shared) {
  const std::int64_t list = list_index(args, index, head);
  if (nan && thread_of_block() == 0) {
    const unsigned long long rows = static_cast<unsigned long long>(args.counts->rows);
    atomicMin(&args.report->nan_place,
              (args.layer * rows + index) * args.shape.num_kv_heads + head);
  }
  const std::int32_t count = list_pages(forced, shared, args.lists + list * args.list_stride);
  if (thread_of_block() != 0) return;
  args.list_count[list] = count;
  atomicAdd(&args.report->pages_read, static_cast<unsigned long long>(count));
  if (count < forced.num_pages) atomicAdd(&args.report->sparse_lists, 1ULL);
}

/// The list of one (row, KV head) that selects.
__device__ inline void select_list(const LayerArgs& args, const Row& row, std::int32_t index,
                                   std::int32_t head, SelectShared& shared) {
  const float* scores = list_scores(args, index, head);
  const ForcedPages forced = forced_of(args, row, head);
  clear_taken(forced, shared);
  const bool nan = any_nan(args, scores, row.num_pages);
  const int k = args.budgets[head].pages - forced.count();
  // With a NaN the forced pages alone are read: the step fails in the end.
  if (!nan && k > 0) take_candidates(args, scores, k, forced, shared);
  write_list(args, index, head, forced, nan, shared);
}

/// One block a (row, KV head).
// Included once a program, like all kernels. NOLINTNEXTLINE(misc-definitions-in-headers)
__global__ void __launch_bounds__(kSelectThreads) select(LayerArgs args) {
  QUEST_SHARED(SelectShared, shared);
  const std::int32_t heads = args.shape.num_kv_heads;
  const std::int32_t index = args.first_scored + block_of_grid() / heads;
  const std::int32_t head = block_of_grid() % heads;
  if (index >= args.end_scored || index >= args.counts->rows) return;
  const Row& row = args.rows[index];
  if (is_scored(args, row, head)) select_list(args, row, index, head, shared);
}

}  // namespace quest::cuda
