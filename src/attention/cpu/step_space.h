// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "attention/cpu/float_buffer.h"
#include "attention/cpu/step_plan.h"
#include "selection/certificate_search.h"
#include "selection/group_selection.h"

namespace quest::cpu {

/// What one thread needs for itself, on cache lines of its own.
struct alignas(64) ThreadSpace {
  FloatBuffer kernel;        ///< scratch of the attend and prefill kernels
  FloatBuffer coefficients;  ///< [score rows, 2, head_dim]
  FloatBuffer fragments;     ///< two unfinished lists: o [group, head_dim], max and sum [group]
  // Of policies that leave light values out.
  FloatBuffer runs;         ///< PartLogits::runs of this thread's parts, one after the other
  FloatBuffer part_states;  ///< by list: greatest q·k and sum [group] of this thread's part
  FloatBuffer list_state;   ///< greatest q·k, sum and cut [group] of a whole list
  std::int64_t values_left_out = 0;  ///< in this step, empty slots of tail pages included
  SelectionScratch selection;
  // Of policies with a certificate alone.
  FloatBuffer magnitudes;       ///< [head_dim], whole lines
  FloatBuffer logits;           ///< [group, kAttendLogitStride]
  FloatBuffer run_masses;       ///< [2, group] greatest q·k and sum of one run of pages
  std::vector<double> margins;  ///< [group]
  CertificateSearch search;
  std::uint64_t calls = 0;  ///< layers run in this step, the same on every thread
  /// Fragments, already computed, of the list that begins in this thread's part. The one member
  /// that others write.
  alignas(64) std::atomic<std::int32_t> arrived{0};
};

/// Work handed out one by one within a layer.
struct alignas(64) WorkCounter {
  std::atomic<std::int64_t> next{0};
};

/// What the search behind a certified list came to.
struct SearchResult {
  std::int32_t pages_probed = 0;
  double epsilon = 0;
};

/// Everything that the threads share while a layer runs. Sized once a step; no layer allocates.
struct StepSpace {
  StepPlan plan;
  FloatBuffer scores;  ///< [slots, score rows, scores_stride]
  std::int64_t scores_stride = 0;
  std::vector<std::int64_t> list_begin;  ///< [rows * KV heads + 1] room of each list in `pages`
  std::vector<std::int32_t> list_count;  ///< [rows * KV heads] pages selected
  std::vector<std::int32_t> pages;       ///< selected logical pages
  std::vector<SearchResult> searches;    ///< [rows * KV heads] with a certificate
  std::int64_t fragment_floats = 0;      ///< of one unfinished list
  std::vector<std::unique_ptr<ThreadSpace>> threads;
  /// One counter of each three is in use, the next may be used by a thread that is already in the
  /// next layer, and the last is reset for the layer after that.
  WorkCounter tile_counters[3];
  WorkCounter list_counters[3];
  /// Least (layer, row, KV head), as one number, where a score was NaN in this step.
  std::atomic<std::int64_t> nan_place{kNoNan};

  static constexpr std::int64_t kNoNan = std::numeric_limits<std::int64_t>::max();
  /// With fewer scored lists than this a thread, the pages of a list are split between threads.
  static constexpr std::int64_t kWholeListsPerThread = 2;

  /// Fewer tokens than this are not worth another thread and a merge.
  static constexpr std::int64_t kTokensWorthSplitting = 128;

  /// Plans the step and sizes every buffer for its largest layer. Throws InvalidArgument.
  void begin(const Batch& batch, const KvCache& cache, const SelectionPolicy& policy,
             std::int32_t num_q_heads, int num_threads);

  float* score_slot(std::int64_t slot, std::int32_t score_rows) const {
    return scores.data() + slot * score_rows * scores_stride;
  }
  /// Greatest q·k and sum, [2, group], of a thread's part of a light list.
  float* part_state(int thread, std::int64_t list) const {
    return threads[static_cast<std::size_t>(thread)]->part_states.data() + 2 * list * plan.group;
  }
  /// Unfinished list `which` (0 or 1) of a thread.
  float* fragment(int thread, int which) const {
    return threads[static_cast<std::size_t>(thread)]->fragments.data() + which * fragment_floats;
  }

 private:
  void size_lists(const KvCache& cache, const SelectionPolicy& policy);
  void size_threads(const KvCache& cache, const SelectionPolicy& policy);
  void size_values(const KvCache& cache);
  void size_searches(const KvCache& cache, const SelectionPolicy& policy);
};

}  // namespace quest::cpu
