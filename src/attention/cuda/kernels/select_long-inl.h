// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "attention/cuda/kernels/select-inl.h"

// select for rows that are long for one block: three kernels in a fixed order, whose blocks share
// out every list by parts of kSelectPart candidates. After a platform header.
//
//   select_range      what the keys of a part lie between
//   select_histogram  how they are spread over kSelectBins equal bins of the whole range
//   select_narrow     which candidates lie above the bin of the k-th best, and which in it; the
//                     last block of a list looks at those in it and writes the list
//
// No block waits for another, and every run gives the same list.

namespace quest::cuda {

struct LongSelectShared {
  SelectShared select;
  std::uint16_t open[kSelectKeys];  ///< candidates whose keys are in select.keys
  bool last;
};

/// Choices of a list that are made apart: by each query head, or one for the group.
__device__ inline int num_choices(const LayerArgs& args) {
  return args.mode == GroupMode::kPerHead ? args.score_rows : 1;
}

/// What a block of these kernels works on: part `part` of the candidates of one choice of a list.
struct SelectPart {
  std::int32_t index;  ///< row
  std::int32_t head;
  int choice;
  std::int32_t part;
  std::int32_t num_parts;  ///< of this list and choice
  ForcedPages forced;
  float* scores;       ///< of the choice's candidates; of several score rows, the first
  std::int64_t place;  ///< of (list, choice) in the work space

  __device__ std::int32_t first() const { return part * kSelectPart; }
  __device__ std::int32_t end() const {
    const std::int32_t count = forced.num_candidates();
    return count - first() > kSelectPart ? first() + kSelectPart : count;
  }
};

__device__ inline float* choice_scores(const LayerArgs& args, std::int32_t index, std::int32_t head,
                                       int choice, const ForcedPages& forced) {
  return list_scores(args, index, head) + choice * args.scores_stride + forced.sink_end;
}

__device__ inline std::int64_t choice_place(const LayerArgs& args, std::int32_t index,
                                            std::int32_t head, int choice) {
  return list_index(args, index - args.first_scored, head) * num_choices(args) + choice;
}

__device__ inline std::int32_t parts_of(const ForcedPages& forced) {
  const std::int32_t parts = (forced.num_candidates() + kSelectPart - 1) / kSelectPart;
  return parts > 1 ? parts : 1;
}

/// The part of this block; false: there is none.
__device__ inline bool find_part(const LayerArgs& args, SelectPart& part) {
  const std::int32_t heads = args.shape.num_kv_heads;
  const int choices = num_choices(args);
  const std::int32_t block = block_of_grid();
  part.part = block % args.select_parts;
  part.choice = block / args.select_parts % choices;
  const std::int32_t list = block / args.select_parts / choices;
  part.index = args.first_scored + list / heads;
  part.head = list % heads;
  if (part.index >= args.end_scored || part.index >= args.counts->rows) return false;
  const Row& row = args.rows[part.index];
  if (!is_scored(args, row, part.head)) return false;
  part.forced = forced_of(args, row, part.head);
  part.num_parts = parts_of(part.forced);
  part.scores = choice_scores(args, part.index, part.head, part.choice, part.forced);
  part.place = choice_place(args, part.index, part.head, part.choice);
  return part.part < part.num_parts;
}

/// Whether a score of a page that is read anyway is NaN.
__device__ inline bool forced_nan(const LayerArgs& args, const SelectPart& part, int rows) {
  const float* const scores = part.scores - part.forced.sink_end;
  const std::int32_t recent = part.forced.num_pages - part.forced.recent_begin;
  bool nan = false;
  for (int r = 0; r < rows; ++r) {
    for (std::int32_t i = thread_of_block(); i < part.forced.sink_end + recent;
         i += kSelectThreads) {
      const std::int32_t page =
          i < part.forced.sink_end ? i : i - part.forced.sink_end + part.forced.recent_begin;
      const float score = scores[r * args.scores_stride + page];
      nan = nan || score != score;
    }
  }
  return nan;
}

/// Finds what a part's keys lie between, and clears what the next kernels count in. Where the group
/// chooses by the best of several score rows, that goes to the first of them.
// Included once a program, like all kernels. NOLINTNEXTLINE(misc-definitions-in-headers)
__global__ void __launch_bounds__(kSelectThreads) select_range(LayerArgs args) {
  QUEST_SHARED(KeyRange, shared);
  SelectPart part;
  if (!find_part(args, part)) return;
  const int rows = args.mode == GroupMode::kPerHead ? 1 : args.score_rows;
  if (part.part == 0) {
    for (int i = thread_of_block(); i < kSelectBins; i += kSelectThreads) {
      args.key_histograms[part.place * kSelectBins + i] = 0;
    }
    if (part.choice == 0 && thread_of_block() == 0) {
      args.parts_done[list_index(args, part.index - args.first_scored, part.head)] = 0;
    }
  }
  if (thread_of_block() == 0) shared = {0xFFFFFFFFU, 0, 0};
  __syncthreads();
  bool nan = part.part == 0 && forced_nan(args, part, rows);
  std::uint32_t low = 0xFFFFFFFFU;
  std::uint32_t high = 0;
  for (std::int32_t i = part.first() + thread_of_block(); i < part.end(); i += kSelectThreads) {
    float most = part.scores[i];
    nan = nan || most != most;
    for (int r = 1; r < rows; ++r) {
      const float score = part.scores[r * args.scores_stride + i];
      nan = nan || score != score;
      most = fmaxf(most, score);
    }
    if (rows > 1) part.scores[i] = most;
    const std::uint32_t key = order_key(most);
    low = key < low ? key : low;
    high = key > high ? key : high;
  }
  join_key_range(low, high, shared.low, shared.high);
  const bool any = __syncthreads_or(nan ? 1 : 0) != 0;
  if (thread_of_block() == 0) {
    args.key_ranges[part.place * args.select_parts + part.part] = {shared.low, shared.high,
                                                                   any ? 1U : 0U};
  }
}

/// The range of a choice's keys in all its parts.
__device__ inline KeyRange find_range(const LayerArgs& args, std::int64_t place,
                                      std::int32_t num_parts) {
  const KeyRange* const ranges = args.key_ranges + place * args.select_parts;
  KeyRange all = ranges[0];
  for (std::int32_t i = 1; i < num_parts; ++i) {
    all.low = ranges[i].low < all.low ? ranges[i].low : all.low;
    all.high = ranges[i].high > all.high ? ranges[i].high : all.high;
    all.nan |= ranges[i].nan;
  }
  return all;
}

/// Bits of a key's distance from the least key that its bin leaves open.
__device__ inline int bin_shift(const KeyRange& range) {
  const int bits = kWarp - __clz(static_cast<int>(range.high - range.low));
  return bits > kSelectBinBits ? bits - kSelectBinBits : 0;
}

struct HistogramShared {
  int bins[kSelectBins];
};

/// Counts the keys of a part by bins.
// Included once a program, like all kernels. NOLINTNEXTLINE(misc-definitions-in-headers)
__global__ void __launch_bounds__(kSelectThreads) select_histogram(LayerArgs args) {
  QUEST_SHARED(HistogramShared, shared);
  SelectPart part;
  if (!find_part(args, part)) return;
  const KeyRange range = find_range(args, part.place, part.num_parts);
  if (range.nan != 0) return;
  const int shift = bin_shift(range);
  for (int i = thread_of_block(); i < kSelectBins; i += kSelectThreads) shared.bins[i] = 0;
  __syncthreads();
  for (std::int32_t i = part.first() + thread_of_block(); i < part.end(); i += kSelectThreads) {
    atomicAdd(&shared.bins[(order_key(part.scores[i]) - range.low) >> shift], 1);
  }
  __syncthreads();
  for (int i = thread_of_block(); i < kSelectBins; i += kSelectThreads) {
    if (shared.bins[i] == 0) continue;
    atomicAdd(&args.key_histograms[part.place * kSelectBins + i], shared.bins[i]);
  }
}

/// The bin that holds the k-th greatest key of a choice; shared.above: how many lie above it.
__device__ inline std::uint32_t find_bin(const LayerArgs& args, std::int64_t place, int k,
                                         SelectShared& shared) {
  constexpr int kEach = kSelectBins / kSelectThreads;
  // Thread t looks at the t-th last run of bins: sums over the threads before are sums from above.
  const int first = (kSelectThreads - 1 - thread_of_block()) * kEach;
  const int* const bins = args.key_histograms + place * kSelectBins + first;
  int count = 0;
  for (int i = 0; i < kEach; ++i) count += bins[i];
  int total = 0;
  int above = block_sum_before<kSelectThreads>(count, shared.warps, total);
  if (above < k && k <= above + count) {
    int bin = kEach - 1;
    for (; above + bins[bin] < k; --bin) above += bins[bin];
    shared.digit = static_cast<std::uint32_t>(first + bin);
    shared.above = above;
  }
  __syncthreads();
  return shared.digit;
}

/// Words of marks of one choice: candidates above the bin, then those in it.
__device__ inline std::uint32_t* choice_marks(const LayerArgs& args, std::int64_t place,
                                              bool in_bin) {
  const std::int64_t words = static_cast<std::int64_t>(args.select_parts) * (kSelectPart / kWarp);
  return args.candidate_marks + (2 * place + (in_bin ? 1 : 0)) * words;
}

/// Marks a part's candidates above the bin of the k-th best and in it.
__device__ inline void mark_part(const LayerArgs& args, const SelectPart& part,
                                 const KeyRange& range, std::uint32_t bin) {
  const int shift = bin_shift(range);
  std::uint32_t* const above = choice_marks(args, part.place, false);
  std::uint32_t* const within = choice_marks(args, part.place, true);
  for (std::int32_t i = part.first() + thread_of_block(); i < part.first() + kSelectPart;
       i += kSelectThreads) {
    const bool valid = i < part.end();
    const std::uint32_t mine = valid ? (order_key(part.scores[i]) - range.low) >> shift : 0;
    const std::uint32_t greater = __ballot_sync(kAllLanes, valid && mine > bin ? 1 : 0);
    const std::uint32_t equal = __ballot_sync(kAllLanes, valid && mine == bin ? 1 : 0);
    if (i % kWarp != 0) continue;
    above[i / kWarp] = greater;
    within[i / kWarp] = equal;
  }
}

/// Candidates that the bins left open, in order, with their keys in shared memory.
class OpenCandidates {
 public:
  __device__ OpenCandidates(std::int32_t count, LongSelectShared& shared)
      : count_(count), shared_(shared) {}
  __device__ std::int32_t count() const { return count_; }
  __device__ std::uint32_t key(std::int32_t i) const { return shared_.select.keys[i]; }
  __device__ void take(std::int32_t word, std::uint32_t bits) const {
    const int lane = thread_of_block() % kWarp;
    if ((bits >> lane & 1U) == 0) return;
    const std::int32_t candidate = shared_.open[word * kWarp + lane];
    atomicOr(&shared_.select.taken[candidate / kWarp], 1U << (candidate % kWarp));
  }

 private:
  std::int32_t count_;
  LongSelectShared& shared_;
};

/// Takes the candidates above the bin and gathers those in it, as many as there is room for;
/// returns how many there are.
__device__ inline std::int32_t gather_open(const LayerArgs& args, std::int64_t place,
                                           const float* scores, std::int32_t count,
                                           LongSelectShared& shared) {
  // Other blocks wrote the marks while this one ran: they are not to come from its own cache.
  const volatile std::uint32_t* const above = choice_marks(args, place, false);
  const volatile std::uint32_t* const within = choice_marks(args, place, true);
  const std::int32_t words = (count + kWarp - 1) / kWarp;
  const std::int32_t per_thread = (words + kSelectThreads - 1) / kSelectThreads;
  const std::int32_t first = thread_of_block() * per_thread;
  const std::int32_t end = first + per_thread < words ? first + per_thread : words;
  int mine = 0;
  for (std::int32_t word = first; word < end; ++word) {
    shared.select.taken[word] |= above[word];
    mine += __popc(within[word]);
  }
  int total = 0;
  int place_of = block_sum_before<kSelectThreads>(mine, shared.select.warps, total);
  for (std::int32_t word = first; word < end; ++word) {
    for (std::uint32_t bits = within[word]; bits != 0 && place_of < kSelectKeys; bits &= bits - 1) {
      const std::int32_t candidate = word * kWarp + lowest_bit(bits);
      shared.open[place_of] = static_cast<std::uint16_t>(candidate);
      shared.select.keys[place_of] = order_key(scores[candidate]);
      ++place_of;
    }
  }
  __syncthreads();
  return total;
}

/// Takes the k best candidates of one choice.
__device__ inline void take_narrowed(const LayerArgs& args, std::int64_t place, const float* scores,
                                     const ForcedPages& forced, int k, LongSelectShared& shared) {
  const std::int32_t count = forced.num_candidates();
  const KeyRange range = find_range(args, place, parts_of(forced));
  const std::uint32_t bin = find_bin(args, place, k, shared.select);
  const Search search{range.low, bin, bin_shift(range)};
  k -= shared.select.above;
  const std::int32_t open = gather_open(args, place, scores, count, shared);
  if (open <= kSelectKeys) {
    const OpenCandidates left(open, shared);
    mark_passing(left, find_threshold(left, search, k, shared.select), shared.select);
  } else {
    const Candidates all(scores, 0, 1, count, false, shared.select);
    mark_passing(all, find_threshold(all, search, k, shared.select), shared.select);
  }
}

/// Whether this is the block that finishes the last part of its list.
__device__ inline bool is_last_part(const LayerArgs& args, const SelectPart& part,
                                    LongSelectShared& shared) {
  __threadfence();
  __syncthreads();
  if (thread_of_block() == 0) {
    const std::int64_t list = list_index(args, part.index - args.first_scored, part.head);
    const int others = part.num_parts * num_choices(args) - 1;
    shared.last = atomicAdd(&args.parts_done[list], 1) == others;
  }
  __syncthreads();
  __threadfence();
  return shared.last;
}

/// Narrows the choice of every part; the last block of a list writes it.
// Included once a program, like all kernels. NOLINTNEXTLINE(misc-definitions-in-headers)
__global__ void __launch_bounds__(kSelectThreads) select_narrow(LayerArgs args) {
  QUEST_SHARED(LongSelectShared, shared);
  SelectPart part;
  if (!find_part(args, part)) return;
  const int k = args.budgets[part.head].pages - part.forced.count();
  const KeyRange range = find_range(args, part.place, part.num_parts);
  if (range.nan == 0 && k > 0) {
    mark_part(args, part, range, find_bin(args, part.place, k, shared.select));
  }
  if (!is_last_part(args, part, shared)) return;

  bool nan = false;
  for (int choice = 0; choice < num_choices(args); ++choice) {
    const std::int64_t place = choice_place(args, part.index, part.head, choice);
    nan = nan || find_range(args, place, part.num_parts).nan != 0;
  }
  clear_taken(part.forced, shared.select);
  __syncthreads();
  for (int choice = 0; choice < num_choices(args) && !nan && k > 0; ++choice) {
    take_narrowed(args, choice_place(args, part.index, part.head, choice),
                  choice_scores(args, part.index, part.head, choice, part.forced), part.forced, k,
                  shared);
  }
  write_list(args, part.index, part.head, part.forced, nan, shared.select);
}

}  // namespace quest::cuda
