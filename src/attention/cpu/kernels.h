// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "quest/paged_kv.h"

namespace quest::cpu {

/// The SIMD kernels: single-threaded functions over plain pointers. They know pages, not batches or
/// threads; none allocates. Pointers to cached data need the alignment of their element only.

/// Pages of one KV head of one layer.
struct HeadPages {
  const std::byte* k = nullptr;         ///< page p: k + p * stride, laid out as PagedKv says
  const std::byte* v = nullptr;         ///< page p: v + p * stride
  std::int64_t stride = 0;              ///< bytes between physical pages
  const std::int32_t* table = nullptr;  ///< physical page of each logical page
  std::int32_t page_size = 0;
  std::int32_t head_dim = 0;
};

/// Scores of the logical pages [first, first + count): each row of coefficients times the summary
/// (SPEC S3.1), as src/selection/fold_query.h makes them. A page's score does not depend on `first`
/// or `count`, so any split of the work gives the same bits.
struct ScoreArgs {
  const std::byte* summaries = nullptr;  ///< of one KV head: [num_pages, 2, head_dim], see PagedKv
  std::int64_t stride = 0;               ///< bytes between the summaries of physical pages
  const std::int32_t* table = nullptr;
  std::int32_t head_dim = 0;
  /// [rows, 2, head_dim]: of minimum and maximum; with q4 summaries of centre and half-width.
  const float* coefficients = nullptr;
  std::int32_t rows = 0;
  std::int32_t first = 0;
  std::int32_t count = 0;
  float* scores = nullptr;  ///< score of row i, page p at scores[i * scores_stride + p]
  std::int64_t scores_stride = 0;
};

/// Attention of the query heads of one KV head over a list of pages, as a partial result
/// (SPEC S5.4): o = Σ exp(logit - max) · v, not divided by sum. Nothing read: (0, -inf, 0).
struct AttendArgs {
  HeadPages pages;
  const float* q = nullptr;  ///< [heads, head_dim]
  std::int32_t heads = 0;
  float scale = 1;
  /// Logical pages to read; null for first, first + 1, …
  const std::int32_t* list = nullptr;
  std::int32_t first = 0;
  std::int32_t count = 0;
  std::int32_t last_tokens = 0;  ///< valid tokens of the last page of the list; others are full
  float* o = nullptr;            ///< [heads, head_dim]
  float* max = nullptr;          ///< [heads]
  float* sum = nullptr;          ///< [heads]
  float* scratch = nullptr;      ///< attend_scratch_floats, 64-byte aligned
};

/// What is known of part of a list between its two passes, where light values are left out: the
/// first reads keys and fills this, the second reads values (SelectionPolicy::value_threshold).
struct PartLogits {
  /// [ceil(pages · page_size / kAttendRun), heads, kAttendLogitStride] q·k, not scaled, run by run
  /// of the part's tokens; -inf where a run ends early. 64-byte aligned.
  float* runs = nullptr;
  float* greatest = nullptr;  ///< [heads] q·k, not scaled
  float* sum = nullptr;       ///< [heads] Σ exp(scale · (q·k - greatest))
};

/// The second pass over part of a list. `greatest` and `cut` are those of the whole list.
struct ValuesArgs {
  /// As for `attend`, but that o, max and sum count only the values read.
  AttendArgs part;
  float* runs = nullptr;            ///< of PartLogits; overwritten
  const float* greatest = nullptr;  ///< [heads]
  /// [heads]: a value is read if exp(scale · (q·k - greatest)) is not below `cut` for some head.
  const float* cut = nullptr;
  std::int32_t* tokens = nullptr;  ///< values read
};

/// Greatest magnitude of each channel in the summaries of logical pages [first, first + count),
/// folded into what `magnitudes` holds already.
struct MagnitudeArgs {
  const std::byte* summaries = nullptr;  ///< as in ScoreArgs
  std::int64_t stride = 0;
  const std::int32_t* table = nullptr;
  std::int32_t head_dim = 0;
  std::int32_t first = 0;
  std::int32_t count = 0;
  float* magnitudes = nullptr;  ///< [head_dim], not NaN; where a summary is NaN, unspecified
};

/// q·k of the query heads of one KV head and the keys of a few pages: what `attend` would compute,
/// before the softmax.
struct ProbeArgs {
  HeadPages pages;
  const float* q = nullptr;  ///< [heads, head_dim]
  std::int32_t heads = 0;
  float scale = 1;
  const std::int32_t* list = nullptr;  ///< logical pages
  std::int32_t count = 0;              ///< of them; at most kAttendRun tokens
  std::int32_t last_tokens = 0;        ///< valid tokens of the last page; others are full
  float* logits = nullptr;  ///< [heads, kAttendLogitStride] q·k, not scaled; 64-byte aligned
  /// [heads] each, or null: the greatest q·k, and Σ exp(scale · (q·k - greatest)); the logits are
  /// overwritten then.
  float* greatest = nullptr;
  float* sum = nullptr;
  float* scratch = nullptr;  ///< attend_scratch_floats, 64-byte aligned
};

/// Dense causal attention of consecutive positions, complete: rows first_position … + rows - 1,
/// each seeing the keys up to itself.
struct PrefillArgs {
  HeadPages pages;
  const float* q = nullptr;  ///< row i, head g: q + i * q_stride + g * head_dim
  std::int64_t q_stride = 0;
  float* out = nullptr;  ///< the same layout
  std::int64_t out_stride = 0;
  std::int32_t heads = 0;
  std::int32_t rows = 0;  ///< rows * heads ≤ the `virtual_rows` that scratch was sized for
  std::int64_t first_position = 0;
  float scale = 1;
  float* scratch = nullptr;  ///< prefill_scratch_floats, 64-byte aligned
};

/// Kernels of one instruction set for one way of storing keys, values and summaries.
struct Kernels {
  void (*score)(const ScoreArgs&) = nullptr;
  void (*attend)(const AttendArgs&) = nullptr;
  /// Pages must be listed; o, max and sum of the part are not touched.
  void (*logits)(const AttendArgs& part, const PartLogits& to) = nullptr;
  void (*values)(const ValuesArgs&) = nullptr;
  void (*prefill)(const PrefillArgs&) = nullptr;
  void (*magnitudes)(const MagnitudeArgs&) = nullptr;
  void (*probe)(const ProbeArgs&) = nullptr;
};

/// The kernels of the widest instruction set that this machine has (or that a test has chosen).
Kernels kernels_for(const CacheShape& shape);
/// Instruction sets that the kernels were compiled for and this machine has, as Highway's target
/// bits, the widest first.
std::vector<std::int64_t> runnable_targets();

/// Scratch that one thread needs for `attend` and `prefill`.
std::int64_t attend_scratch_floats(std::int32_t head_dim);
std::int64_t prefill_scratch_floats(std::int32_t virtual_rows, std::int32_t head_dim);

/// Query heads that `attend` serves in one pass over the pages; more heads take several passes.
inline constexpr std::int32_t kMaxHeadsInPass = 8;
/// Tokens whose logits are held at once.
inline constexpr std::int32_t kAttendRun = 256;
/// Runs of a list of `tokens`.
constexpr std::int64_t attend_runs(std::int64_t tokens) {
  return (tokens + kAttendRun - 1) / kAttendRun;
}
/// Floats between the logits of two heads: a run and a cache line, to spread over the cache sets.
inline constexpr std::int32_t kAttendLogitStride = kAttendRun + 16;

}  // namespace quest::cpu
