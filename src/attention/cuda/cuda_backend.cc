// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "attention/cuda/cuda_backend.h"

#include <cstring>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "quest/team.h"

namespace quest::cuda {

namespace {

/// Rows go to the device before a layer and come back after it, packed: the model runs on the host.
class Backend final : public AttentionBackend {
 public:
  Backend(KvCache& cache, SelectionPolicy policy, std::unique_ptr<Device> device,
          const Tuning& tuning)
      : shape_(cache.shape()),
        device_(std::move(device)),
        step_(cache, *device_, tuning),
        rows_(*device_) {
    Backend::set_policy(std::move(policy));
  }

  std::string_view name() const override { return "cuda"; }
  std::string device() const override { return device_->name(); }

  void set_policy(SelectionPolicy policy) override { step_.set_policy(std::move(policy)); }

  void begin_step(const Batch& batch, std::int32_t num_q_heads, int /*threads*/) override {
    error_ = nullptr;
    step_.begin(batch, num_q_heads);
    q_width_ = std::int64_t{num_q_heads} * shape_.head_dim;
    kv_width_ = std::int64_t{shape_.num_kv_heads} * shape_.head_dim;
    const std::int64_t floats = step_.num_rows() * (2 * q_width_ + 2 * kv_width_);
    rows_.grow(floats);
    if (static_cast<std::int64_t>(staging_.size()) < floats) {
      staging_.resize(static_cast<std::size_t>(floats));
    }
  }

  void forward(const LayerInput& input, Team& team, int thread) override {
    if (thread == 0) run_or_remember(input);
    team.wait();
  }

  void end_step() override {
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
    step_.finish(counters_);
  }

  const AttentionCounters& counters() const override { return counters_; }
  void reset_counters() override { counters_ = {}; }
  SelectedPages last_selection() const override { return step_.last_selection(); }

 private:
  /// An error must not keep the other members of the team waiting: `end_step` throws it.
  void run_or_remember(const LayerInput& input) noexcept {
    if (error_) return;
    try {
      run_layer(input);
    } catch (...) {
      error_ = std::current_exception();
    }
  }

  void run_layer(const LayerInput& input) {
    const std::int64_t rows = step_.num_rows();
    if (rows == 0) return;
    float* const q = staging_.data();
    float* const k = q + rows * q_width_;
    float* const v = k + rows * kv_width_;
    float* const out = v + rows * kv_width_;
    pack(input.q, input.q_stride, q_width_, q);
    pack(input.k, input.k_stride, kv_width_, k);
    pack(input.v, input.v_stride, kv_width_, v);
    device_->upload(rows_.data(), q, (out - q) * static_cast<std::int64_t>(sizeof(float)));

    DeviceRows on_device;
    on_device.q = rows_.data();
    on_device.k = on_device.q + (k - q);
    on_device.v = on_device.q + (v - q);
    on_device.out = rows_.data() + (out - q);
    on_device.q_stride = on_device.out_stride = q_width_;
    on_device.k_stride = on_device.v_stride = kv_width_;
    step_.run(input.layer, on_device, input.scale);

    device_->download(out, on_device.out,
                      rows * q_width_ * static_cast<std::int64_t>(sizeof(float)));
    for (std::int64_t i = 0; i < rows; ++i) {
      std::memcpy(input.out + i * input.out_stride, out + i * q_width_,
                  static_cast<std::size_t>(q_width_) * sizeof(float));
    }
  }

  void pack(const float* from, std::int64_t stride, std::int64_t width, float* to) const {
    for (std::int64_t i = 0; i < step_.num_rows(); ++i) {
      std::memcpy(to + i * width, from + i * stride,
                  static_cast<std::size_t>(width) * sizeof(float));
    }
  }

  const CacheShape shape_;
  const std::unique_ptr<Device> device_;  // outlives all that is allocated on it
  DeviceStep step_;
  DeviceArray<float> rows_;  ///< q, k, v and out of one layer
  std::vector<float> staging_;
  std::int64_t q_width_ = 0;
  std::int64_t kv_width_ = 0;
  AttentionCounters counters_;
  std::exception_ptr error_;  ///< what went wrong in this step
};

}  // namespace

std::unique_ptr<AttentionBackend> make_backend(KvCache& cache, SelectionPolicy policy,
                                               std::unique_ptr<Device> device,
                                               const Tuning& tuning) {
  return std::make_unique<Backend>(cache, std::move(policy), std::move(device), tuning);
}

}  // namespace quest::cuda
