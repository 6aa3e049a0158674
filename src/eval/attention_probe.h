// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "eval/head_probe.h"
#include "eval/observed_backend.h"
#include "quest/kv_cache.h"

namespace quest::eval {

/// Adds the figures of every layer it is shown to a run. Steps that it watches hold one row.
class AttentionProbe final : public LayerObserver {
 public:
  /// While it lives the probe watches and `run` receives the figures.
  class Watch {
   public:
    Watch(AttentionProbe& probe, const KvCache& cache, float beta, std::int32_t top,
          FidelityRun& run);
    ~Watch() { probe_.run_ = nullptr; }
    Watch(const Watch&) = delete;
    Watch& operator=(const Watch&) = delete;

   private:
    AttentionProbe& probe_;
  };

  bool wants_layers() const override { return run_ != nullptr; }
  void observe(const Batch& batch, const LayerInput& input, const SelectedPages& pages, Team& team,
               int thread) override;

 private:
  void probe_kv_head(const Batch& batch, const LayerInput& input, const SelectedPages& pages,
                     std::int32_t kv_head, HeadPages& space);
  void compare_with_layer_before(const LayerInput& input, const SelectedPages& pages,
                                 std::int32_t num_pages);

  const KvCache* cache_ = nullptr;
  float beta_ = 1;
  std::int32_t top_ = 1;
  FidelityRun* run_ = nullptr;
  std::vector<HeadPages> spaces_;           ///< [kv heads]
  std::vector<std::int32_t> pages_before_;  ///< any head's, of the layer before; empty: all
};

}  // namespace quest::eval
