// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "quest/attention.h"

namespace quest::eval {

/// Sees every layer of every step after the serving backend has computed it.
class LayerObserver {
 public:
  virtual ~LayerObserver() = default;
  /// False: the layers to come need not be shown. Asked by every thread, must not change within a
  /// step.
  virtual bool wants_layers() const = 0;
  /// Called by every member of the team, which share the work between them. The outputs are
  /// complete; `pages` are the lists that were read.
  virtual void observe(const Batch& batch, const LayerInput& input, const SelectedPages& pages,
                       Team& team, int thread) = 0;
};

/// The backend `inner` with an observer on it, which must outlive it.
std::unique_ptr<AttentionBackend> observe_backend(std::unique_ptr<AttentionBackend> inner,
                                                  LayerObserver& observer);

}  // namespace quest::eval
