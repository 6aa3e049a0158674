// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quest/batch.h"
#include "quest/counters.h"
#include "quest/kv_cache.h"
#include "quest/policy.h"

namespace quest {

class Team;

/// What one layer hands to attention. Rows follow Batch's query rows. Strides count floats between
/// rows; heads are contiguous inside a row.
struct LayerInput {
  std::int32_t layer = 0;
  std::int32_t num_q_heads = 0;
  float scale = 1;           ///< factor on q·k, > 0, usually 1 / sqrt(head_dim)
  const float* q = nullptr;  ///< [rows, num_q_heads, head_dim], after RoPE
  const float* k = nullptr;  ///< [rows, num_kv_heads, head_dim], after RoPE
  const float* v = nullptr;  ///< [rows, num_kv_heads, head_dim]
  std::int64_t q_stride = 0;
  std::int64_t k_stride = 0;
  std::int64_t v_stride = 0;
  float* out = nullptr;  ///< [rows, num_q_heads, head_dim], rows out_stride apart
  std::int64_t out_stride = 0;
};

/// Logical pages that each (row, KV head) of the last layer call read, ascending. For tests and
/// diagnostics. List of (row, head) = pages[indptr[row * num_kv_heads + head] … next).
struct SelectedPages {
  std::vector<std::int64_t> indptr{0};
  std::vector<std::int32_t> pages;
};

/// The attention operator: append → summarise → score → select → attend for one layer at a time
/// over a ragged batch. Nothing above knows which backend runs.
class AttentionBackend {
 public:
  virtual ~AttentionBackend() = default;
  virtual std::string_view name() const = 0;
  /// Where keys, values and attention are: "cpu", or the GPU's name as its driver gives it.
  virtual std::string device() const = 0;

  /// The policy of the steps to come. Throws InvalidArgument, the old policy then stays. One
  /// thread, between steps.
  virtual void set_policy(SelectionPolicy policy) = 0;

  /// Starts a step: checks the batch (InvalidArgument) and sizes every buffer for a team of
  /// `threads`, so that `forward` allocates nothing. The batch must outlive the step. Tokens of the
  /// batch's rows must have been reserved in the cache. One thread.
  virtual void begin_step(const Batch& batch, std::int32_t num_q_heads, int threads) = 0;
  /// Runs one layer. Every member of the team calls it with its own `thread`; it returns when this
  /// member's part is done. The output is complete when all have returned. A NaN in q, a key or a
  /// summary that scoring meets is reported by `end_step` (SPEC S4.8).
  virtual void forward(const LayerInput& input, Team& team, int thread) = 0;
  /// Ends the step; throws Error if scoring met a NaN. One thread.
  virtual void end_step() = 0;

  virtual const AttentionCounters& counters() const = 0;
  virtual void reset_counters() = 0;
  /// Page lists of the last `forward`, dense rows included.
  virtual SelectedPages last_selection() const = 0;
};

/// The scalar backend: obviously correct, float64 accumulation, one thread works. The oracle of
/// every other backend; never used to serve.
std::unique_ptr<AttentionBackend> make_reference_backend(KvCache& cache, SelectionPolicy policy);
/// The SIMD CPU backend, dispatched at run time to the widest instructions of this machine.
std::unique_ptr<AttentionBackend> make_cpu_backend(KvCache& cache, SelectionPolicy policy);

}  // namespace quest
