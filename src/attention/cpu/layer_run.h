// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <span>

#include "attention/cpu/kernels.h"
#include "attention/cpu/step_space.h"
#include "quest/attention.h"
#include "quest/team.h"

namespace quest::cpu {

/// One thread's part of one layer: append → summarise → score → select → attend. Every member of
/// the team makes one and calls `run`; they meet only in barriers and work counters.
class LayerRun {
 public:
  LayerRun(StepSpace& space, const KvCache& cache, const SelectionPolicy& policy,
           const Kernels& kernels, const LayerInput& input, Team& team, int thread);

  /// `seconds` is written by thread 0 alone.
  void run(StageSeconds& seconds);

 private:
  /// One (row, KV head).
  struct List {
    std::int32_t row;
    std::int32_t head;
    const RequestPlan& request;
    const RowPlan& plan;
  };

  // Adds the time since the last call to `total`; on thread 0 only.
  void lap(double& total);
  PageBudget budget(std::int32_t head) const;
  /// Calls body(list) for all lists of the layer, rows first, in the same order on every thread.
  template <class Body>
  void for_each_list(const Body& body) const;
  template <class Body>
  void for_each_scored(const Body& body) const;
  template <class Body>
  void for_each_written(const Body& body) const;
  HeadPages head_pages(const RequestPlan& request, std::int32_t head) const;
  const float* query(std::int32_t row, std::int32_t head) const;
  float* output(std::int32_t row, std::int32_t head) const;

  void survey();
  void append();
  void summarise();
  void score_split();
  void select_split(StageSeconds& seconds);
  void score_and_select_whole(StageSeconds& seconds);
  void fold_queries(const List& list);
  void score(const List& list, float* scores, std::int32_t first, std::int32_t count);
  void select(const List& list, const float* scores);
  void report_nan(const List& list);
  void leave_nan_list(const List& list);
  void certify_lists(StageSeconds& seconds);
  void bound_pages(const List& list, float* bounds);
  void certify(const List& list, const float* bounds);
  void probe(const List& list, std::span<const std::int32_t> pages);

  /// Whether values of the list may be left out: it is read in two passes.
  bool light(const List& list) const;
  void attend_light_lists();
  void attend_light_list(const List& list);
  void read_values(const List& list, const AttendArgs& args, float* runs, float* state);

  /// Part of a list. Pages are counted over all lists that were divided.
  struct Part {
    const List& list;
    std::int64_t index;       ///< of the list among those divided
    std::int64_t list_first;  ///< its first page
    std::int64_t list_end;
    std::int64_t begin;
    std::int64_t end;

    bool whole() const { return begin == list_first && end == list_end; }
    /// Where its unfinished result goes.
    int fragment() const { return begin == list_first ? 1 : 0; }
  };
  /// Threads that share a list, both included.
  struct Sharers {
    int first;
    int last;
  };
  /// Divides the pages of the light lists, or of the others, between the threads.
  void divide_lists(bool light_ones);
  /// Calls body(part) for this thread's parts.
  template <class Body>
  void for_each_part(bool light_ones, const Body& body) const;
  void attend_lists();
  void finish_part(const Part& part, const AttendArgs& args);
  Sharers sharers(const Part& part) const;
  AttendArgs part_args(const Part& part) const;
  void attend_part(const Part& part);
  void merge_fragments(const List& list, int first_thread, int last_thread);
  void attend_tiles();
  void attend_tile(const RequestPlan& request, std::int32_t head, std::int32_t first);
  std::int32_t list_pages(const List& list) const;
  std::size_t list_index(const List& list) const;
  /// First of all lists' pages that belongs to a thread.
  std::int64_t share(int thread) const { return list_pages_total_ * thread / splits_; }

  StepSpace& space_;
  const StepPlan& plan_;
  const CacheShape& shape_;
  const SelectionPolicy& policy_;
  const Kernels& kernels_;
  const LayerInput& input_;
  Team& team_;
  const int thread_;
  const int threads_;
  ThreadSpace& own_;
  const PagedKv kv_;
  const std::int32_t score_rows_;

  // What the layer holds, found by `survey`.
  std::int64_t scored_lists_ = 0;
  std::int64_t scored_pages_ = 0;  ///< their pages but for the rows' own
  bool scores_need_append_ = false;
  std::int64_t tiles_ = 0;

  std::int64_t list_pages_total_ = 0;
  int splits_ = 1;  ///< threads that the pages of the lists are divided between
  std::chrono::steady_clock::time_point last_lap_;
};

/// Adds what a layer has read, once all its lists are selected (SPEC S8).
void count_layer(const StepSpace& space, const CacheShape& shape, const SelectionPolicy& policy,
                 std::int32_t layer, AttentionCounters& counters);

}  // namespace quest::cpu
