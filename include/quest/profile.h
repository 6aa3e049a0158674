// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace quest {

/// What an operation of the model's graph is for.
enum class Operation {
  kStart,       ///< planning the graph, waking the threads, looking the embedding up
  kNorm,        ///< RMS norms and their weights
  kQkv,         ///< queries, keys and values
  kRope,        ///< rotation of queries and keys
  kAttention,   ///< append, summarise, score, select, attend
  kOut,         ///< attention's output matrix
  kGateUp,      ///< the feed-forward's first two matrices
  kActivation,  ///< SwiGLU
  kDown,        ///< the feed-forward's last matrix
  kAdd,         ///< residuals, biases, choice of output rows
  kHead,        ///< the output matrix: logits
};
inline constexpr std::size_t kNumOperations = 11;

/// "start", "norm", "qkv", …
std::string_view name_of(Operation operation);

/// What the operations of one kind took, summed over steps.
struct OperationProfile {
  double seconds = 0;  ///< from the end of the operation before to its own end, on the first thread
  std::int64_t count = 0;
  std::int64_t weight_bytes = 0;  ///< of the matrices multiplied with
  double flops = 0;               ///< of those multiplications
};

/// Where the time of forward steps went, by kind of operation. The parts add up to what
/// the first thread spent in the graph; it waits for the others in the part that follows theirs.
struct StepProfile {
  std::array<OperationProfile, kNumOperations> operations;
  std::int64_t steps = 0;
  double step_seconds = 0;  ///< whole steps
  /// What an operation that does nothing takes here: its dispatch and the barrier after it.
  double empty_operation_seconds = 0;

  const OperationProfile& of(Operation operation) const {
    return operations[static_cast<std::size_t>(operation)];
  }
  double graph_seconds() const;
  std::int64_t graph_operations() const;
};

}  // namespace quest
