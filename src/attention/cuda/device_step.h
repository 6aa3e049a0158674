// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "attention/cuda/device.h"
#include "attention/cuda/device_pool.h"
#include "attention/cuda/long_select.h"
#include "attention/cuda/step_arrays.h"
#include "quest/attention.h"

namespace quest::cuda {

/// How a step is shared out. Zeros are replaced by what suits the device.
struct Tuning {
  std::int32_t most_splits = 0;  ///< of lists or tiles beyond one each; 0: a few a multiprocessor
  std::int32_t split_tokens = 128;  ///< least tokens of a split of a list; of a tile, four times
  std::int64_t score_floats = 0;    ///< work space for scores; 0: 64 Mi. More rows take turns.
  bool timed = true;                ///< note the time of every stage
};

/// Rows of one layer in device memory; strides count floats.
struct DeviceRows {
  const float* q = nullptr;      ///< [rows, num_q_heads, head_dim]
  const float* k = nullptr;      ///< [rows, num_kv_heads, head_dim]
  const float* v = nullptr;      ///< [rows, num_kv_heads, head_dim]
  float* out = nullptr;          ///< [rows, num_q_heads, head_dim]
  float* log_sum_exp = nullptr;  ///< [rows, num_q_heads], or null
  std::int64_t q_stride = 0;
  std::int64_t k_stride = 0;
  std::int64_t v_stride = 0;
  std::int64_t out_stride = 0;
};

/// Device memory of a SplitPlan.
struct SplitRoom {
  explicit SplitRoom(Device& device) : plan(device), partial(device) {}
  DeviceArray<std::int32_t> plan;
  DeviceArray<float> partial;  ///< o, max and sum of every partial result
};

/// One step of the attention operator on a device: plans, sizes the work space, launches. From
/// device pointers to device pointers; between `begin` and `finish` nothing is copied to or from
/// the host, and the launches depend on the number of rows, on whether some of them are prefilled,
/// on the policy and on capacities alone, so that the layers of a step can be captured in a CUDA
/// graph and replayed after another `begin`.
class DeviceStep {
 public:
  DeviceStep(KvCache& cache, Device& device, const Tuning& tuning);

  /// Throws InvalidArgument for what the kernels do not serve, naming it; the old policy then
  /// stays.
  void set_policy(SelectionPolicy policy);
  const SelectionPolicy& policy() const { return policy_; }

  /// Checks the batch, brings the pool up to date and sends the plan. Throws InvalidArgument.
  void begin(const Batch& batch, std::int32_t num_q_heads);
  /// Launches append → summarise → score → select → attend for one layer, the first two as one.
  void run(std::int32_t layer, const DeviceRows& rows, float scale);
  /// Waits for the step and adds what it did to the counters; throws Error if scoring met a NaN.
  void finish(AttentionCounters& counters);

  /// Whether layers note the time of their stages; off for layers that are captured.
  void time_stages(bool on) { tuning_.timed = on; }

  DevicePool& pool() { return pool_; }
  std::int32_t num_rows() const { return arrays_.num_rows(); }
  /// Page lists of the layer that ran last; waits for it.
  SelectedPages last_selection() const;

 private:
  bool selects(std::int32_t layer) const;
  bool is_scored(std::int32_t layer, const Row& row, std::int32_t head) const;
  std::int32_t longest_list() const;
  std::int64_t score_parts() const;
  std::int32_t most_splits(Kernel kernel, std::int64_t lists) const;
  void size_splits(SplitPlan& plan, SplitRoom& room, std::int64_t lists, std::int64_t rows) const;
  void size_work_space();
  std::int64_t score_room(std::int32_t rows) const;
  LayerArgs layer_args(std::int32_t layer, const DeviceRows& rows, float scale) const;
  void store_keys(const LayerArgs& args);
  void select_pages(const LayerArgs& layer);
  void launch_select(const LayerArgs& args, std::int64_t lists);
  void combine_scores(LayerArgs& args, std::int64_t lists);
  void attend(const LayerArgs& args);
  void launch(Kernel kernel, const LayerArgs& args, std::int64_t work, std::int64_t per_processor);
  void mark_stage();
  void count_layer(std::int32_t layer, AttentionCounters& counters) const;
  void count_seconds(StageSeconds& seconds) const;

  const KvCache& cache_;
  Device& device_;
  Tuning tuning_;
  DevicePool pool_;
  SelectionPolicy policy_;
  std::vector<HeadBudget> budgets_;  ///< [num_layers, num_kv_heads]
  std::int32_t group_ = 1;
  StepArrays arrays_;
  std::vector<std::int32_t> layers_run_;  ///< of this step
  std::size_t marks_ = 0;
  std::int32_t rows_a_pass_ = 1;  ///< rows whose scores have room

  LayerArgs work_;  ///< pointers and strides of the work space
  DeviceArray<HeadBudget> device_budgets_;
  DeviceArray<float> scores_;
  DeviceArray<SoftmaxPart> softmax_parts_;
  LongSelect long_select_;
  DeviceArray<std::int32_t> lists_;
  DeviceArray<std::int32_t> list_count_;
  SplitRoom list_splits_;
  SplitRoom tile_splits_;
  DeviceArray<StepReport> report_;
};

}  // namespace quest::cuda
