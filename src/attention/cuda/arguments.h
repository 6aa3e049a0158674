// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "quest/kv_type.h"
#include "quest/policy.h"

// Plain data that the host hands to kernels. Pointers are device pointers.
namespace quest::cuda {

/// How the pool is laid out; the same in all layers.
struct PoolShape {
  std::int32_t num_kv_heads = 0;
  std::int32_t head_dim = 0;    ///< 64, 128 or 256
  std::int32_t page_shift = 0;  ///< page_size = 1 << page_shift
  std::int64_t num_pages = 0;
  bool bf16 = false;  ///< keys, values and plain summaries are bf16, else f16
  SummaryType summary_type = SummaryType::kPlain;

  constexpr std::int32_t page_size() const { return 1 << page_shift; }
};

/// One layer of the paged cache in device memory. Keys lie by token, unlike on CPUs: kernels bring
/// pages to shared memory in pieces of 16 bytes and turn them there (docs/cuda.md).
struct LayerPool {
  std::uint16_t* k = nullptr;          ///< [num_pages, num_kv_heads, page_size, head_dim]
  std::uint16_t* v = nullptr;          ///< the same
  std::uint16_t* summaries = nullptr;  ///< plain: [num_kv_heads, num_pages, 2, head_dim]
  /// q8: the same shape; q4: [num_kv_heads, num_pages, head_dim], bytes as PagedKv has them.
  std::int8_t* rounded_summaries = nullptr;
  /// f16; q8: [num_kv_heads, num_pages, head_dim / 32]; q4: [num_kv_heads, num_pages, 2,
  /// head_dim / 32], of centres and of half-widths.
  std::uint16_t* summary_scales = nullptr;
};

/// Bytes of one rounded summary, scales apart.
constexpr std::int32_t summary_bytes(const PoolShape& shape) {
  return shape.summary_type == SummaryType::kQ4 ? shape.head_dim : 2 * shape.head_dim;
}
/// Scales of one rounded summary.
constexpr std::int32_t summary_scales(const PoolShape& shape) {
  const std::int32_t blocks = shape.head_dim / kScaleBlock;
  return shape.summary_type == SummaryType::kQ4 ? 2 * blocks : blocks;
}

/// One query row: what it sees is fixed by its position alone.
struct Row {
  std::int32_t table = 0;        ///< where the request's page table begins
  std::int32_t num_pages = 0;    ///< pages that the row sees, its own included
  std::int32_t tail_tokens = 0;  ///< tokens that it sees of its own page, the last of these
  std::int32_t sparse = 0;       ///< 1: may leave pages out
  std::int32_t in_tile = 0;      ///< 1: one of several rows of a request, see `Tile`
};

/// A page that a step writes to, or whose summary is to be made anew.
struct TouchedPage {
  std::int32_t page = 0;
  std::int32_t tokens = 0;     ///< valid tokens, those of the step included
  std::int32_t added = 0;      ///< of the step, the last of them
  std::int32_t first_row = 0;  ///< of those
};

/// An entry of the page tables that is not what the step before left there.
struct TablePatch {
  std::int32_t place = 0;
  std::int32_t page = 0;
};

/// Consecutive rows of one request that the prefill kernel serves together where they read
/// everything.
struct Tile {
  std::int32_t first_row = 0;
  std::int32_t rows = 0;
};

struct StepCounts {
  std::int32_t rows = 0;
  std::int32_t touched = 0;
  std::int32_t tiles = 0;
};

/// How many pages a KV head of a layer may read.
struct HeadBudget {
  std::int32_t pages = 0;      ///< that a list selects, forced ones included
  std::int32_t crossover = 0;  ///< a row that sees at most so many pages reads them all
};

/// Of the softmax over scale · score of one query head, from the pages of one part that are free to
/// choose: the greatest score, and Σ exp(scale · (score - top)); where `top` is infinite, how many
/// pages hold it. Without such pages -inf and 0.
struct SoftmaxPart {
  float top = 0;
  float sum = 0;
};

/// How lists of pages are shared out between blocks, and where blocks leave the parts of lists that
/// several serve (SPEC S5.4).
struct SplitPlan {
  std::int32_t* indptr = nullptr;  ///< [lists + 1] splits of the lists before
  /// [lists + 1] partial results of the lists before; a list with one split has none.
  std::int32_t* partial_indptr = nullptr;
  std::int32_t* pages = nullptr;  ///< [1] pages of one split; fewer in the last of a list
  std::int32_t most = 0;          ///< splits beyond one a list; partial results are twice as many
  std::int32_t least_pages = 1;
  float* o = nullptr;    ///< [partial results, rows, head_dim] Σ exp(logit - max) · value
  float* max = nullptr;  ///< [partial results, rows]
  float* sum = nullptr;  ///< [partial results, rows] Σ exp(logit - max)
};

/// What the order keys of some candidates lie between, and whether one of their scores is NaN.
struct KeyRange {
  std::uint32_t low = 0;
  std::uint32_t high = 0;
  std::uint32_t nan = 0;
};

/// What kernels report about a step, read back at its end.
struct StepReport {
  unsigned long long nan_place = 0;   ///< least (layer, row, KV head) of a NaN score; kNoNan: none
  unsigned long long pages_read = 0;  ///< by selected lists
  unsigned long long sparse_lists = 0;  ///< selected lists that left pages out

  static constexpr unsigned long long kNoNan = ~0ULL;
};

/// Everything that the kernels of one layer of one step need.
struct LayerArgs {
  PoolShape shape;
  LayerPool pool;
  std::int32_t layer = 0;
  std::int32_t group = 1;  ///< query heads of one KV head
  float scale = 1;

  // Rows of heads, float; strides count floats between rows.
  const float* q = nullptr;      ///< [rows, num_kv_heads * group, head_dim]
  const float* k = nullptr;      ///< [rows, num_kv_heads, head_dim]
  const float* v = nullptr;      ///< [rows, num_kv_heads, head_dim]
  float* out = nullptr;          ///< [rows, num_kv_heads * group, head_dim]
  float* log_sum_exp = nullptr;  ///< [rows, num_kv_heads * group], or null
  std::int64_t q_stride = 0;
  std::int64_t k_stride = 0;
  std::int64_t v_stride = 0;
  std::int64_t out_stride = 0;

  // The step.
  const StepCounts* counts = nullptr;
  const Row* rows = nullptr;
  const TouchedPage* touched = nullptr;
  const Tile* tiles = nullptr;
  const std::int32_t* table = nullptr;  ///< physical pages of all requests
  /// [rows + 1] parts of kScorePart pages of the rows before, sparse rows alone.
  const std::int32_t* part_indptr = nullptr;

  // The policy.
  const HeadBudget* budgets = nullptr;  ///< [num_kv_heads] of this layer
  GroupMode mode = GroupMode::kGroupMean;
  float beta = 1;
  std::int32_t sinks = 0;
  std::int32_t window = 0;

  // Work space.
  /// Scores of rows [first_scored, end_scored): [row, KV head] lists, scores_per_list floats apart,
  /// of [score_rows, scores_stride]; kGroupSoftmax and kQuota have one row more, the group's.
  float* scores = nullptr;
  std::int64_t scores_stride = 0;
  std::int64_t scores_per_list = 0;
  std::int32_t score_rows = 1;
  std::int32_t first_scored = 0;
  std::int32_t end_scored = 0;
  /// Of kGroupSoftmax: [part, KV head, group], parts of the same rows as part_indptr counts them.
  SoftmaxPart* softmax_parts = nullptr;
  // Of select for rows too long for one block; a choice is what a query head makes in kPerHead, and
  // else the group.
  std::int32_t select_parts = 1;           ///< parts of kSelectPart candidates of the longest row
  KeyRange* key_ranges = nullptr;          ///< [row, KV head, choice, select_parts]
  std::int32_t* key_histograms = nullptr;  ///< [row, KV head, choice, kSelectBins]
  /// [row, KV head, choice, 2, select_parts * kSelectPart / 32] bits of the candidates above the
  /// bin of the last place, and of those in it.
  std::uint32_t* candidate_marks = nullptr;
  std::int32_t* parts_done = nullptr;  ///< [row, KV head]

  std::int32_t* lists = nullptr;  ///< [rows, num_kv_heads, list_stride] selected logical pages
  std::int64_t list_stride = 0;
  std::int32_t* list_count = nullptr;  ///< [rows, num_kv_heads]
  SplitPlan list_splits;               ///< of [row, KV head], with `group` rows
  SplitPlan tile_splits;  ///< of what tiles read, [tile, KV head], with kTileHeads rows
  StepReport* report = nullptr;

  // Of copy_page alone: physical pages.
  std::int32_t copy_from = 0;
  std::int32_t copy_to = 0;

  // Of patch_tables alone.
  std::int32_t* patched = nullptr;
  const TablePatch* patches = nullptr;
  std::int32_t num_patches = 0;
};

/// Whether the heads' scores become one score of the group before pages are selected.
constexpr bool combines_scores(GroupMode mode) {
  return mode == GroupMode::kGroupSoftmax || mode == GroupMode::kQuota;
}

/// Narrows the scores to those that select reads: with kGroupSoftmax the group's alone, with kQuota
/// the group's after those of the heads.
constexpr void take_combined_scores(LayerArgs& args) {
  if (args.mode == GroupMode::kGroupSoftmax) {
    args.scores += args.score_rows * args.scores_stride;
    args.score_rows = 1;
  } else if (args.mode == GroupMode::kQuota) {
    args.score_rows += 1;
  }
}

/// Pages that one block scores at a time.
inline constexpr std::int32_t kScorePart = 64;
/// Pages that one block of the combine kernel makes a score of at a time.
inline constexpr std::int32_t kCombinePart = 256;
/// Most query heads of one KV head.
inline constexpr std::int32_t kMaxGroup = 16;
/// Query heads of one KV head from which on attend uses tensor cores, whose tiles have 16 rows.
inline constexpr std::int32_t kLeastLargeGroup = 8;
/// Most pages that a row may choose from: what the marks of the select kernel have room for.
inline constexpr std::int32_t kMaxScoredPages = 65536;
/// Keys that one block of the select kernel has room for: longer rows are for several.
inline constexpr std::int32_t kSelectKeys = 6144;
/// Candidates of one of those blocks.
inline constexpr std::int32_t kSelectPart = 2048;
inline constexpr int kSelectBinBits = 10;
/// Equal parts of the range of keys that they are counted by.
inline constexpr int kSelectBins = 1 << kSelectBinBits;
/// Page table entries that one block changes.
inline constexpr std::int32_t kPatchThreads = 128;
/// Rows of heads (positions times query heads of the group) that share one pass of the prefill
/// kernel over keys and values.
inline constexpr std::int32_t kTileHeads = 64;

/// Parts of the combine kernel in a row that fills the room for scores.
constexpr std::int64_t num_combine_parts(const LayerArgs& args) {
  return (args.scores_stride + kCombinePart - 1) / kCombinePart;
}

}  // namespace quest::cuda
