// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "model/operation_timer.h"

#include <ggml-alloc.h>
#include <ggml-cpp.h>
#include <ggml-cpu.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

#include "quest/error.h"

namespace quest {

namespace {

// Operations that only describe memory; ggml skips them.
bool is_view(const ggml_tensor* node) {
  switch (node->op) {
    case GGML_OP_NONE:
    case GGML_OP_RESHAPE:
    case GGML_OP_VIEW:
    case GGML_OP_PERMUTE:
    case GGML_OP_TRANSPOSE:
      return true;
    default:
      return false;
  }
}

Operation product_kind(std::string_view matrix) {
  const auto has = [&](std::string_view part) { return matrix.find(part) != matrix.npos; };
  if (has("attn_output.")) return Operation::kOut;
  if (has("attn_")) return Operation::kQkv;
  if (has("ffn_down.")) return Operation::kDown;
  if (has("ffn_")) return Operation::kGateUp;
  return Operation::kHead;
}

Operation kind_of(const ggml_tensor* node) {
  switch (node->op) {
    case GGML_OP_RMS_NORM:
    case GGML_OP_MUL:
      return Operation::kNorm;
    case GGML_OP_ROPE:
      return Operation::kRope;
    case GGML_OP_CUSTOM:
      return Operation::kAttention;
    case GGML_OP_GLU:
      return Operation::kActivation;
    case GGML_OP_MUL_MAT:
      return product_kind(node->src[0]->name);
    default:
      return Operation::kAdd;
  }
}

// The graph's operations in the order in which they end. ggml runs a norm and the multiplication
// with its weights as one, unless told not to.
std::vector<const ggml_tensor*> operations_of(ggml_cgraph* graph, bool fused) {
  std::vector<const ggml_tensor*> operations;
  for (int i = 0; i < ggml_graph_n_nodes(graph); ++i) {
    const ggml_tensor* node = ggml_graph_node(graph, i);
    if (is_view(node)) continue;
    const bool joins = fused && !operations.empty() && node->op == GGML_OP_MUL &&
                       operations.back()->op == GGML_OP_RMS_NORM &&
                       (node->src[0] == operations.back() || node->src[1] == operations.back());
    if (!joins) operations.push_back(node);
  }
  return operations;
}

void do_nothing(ggml_tensor* /*out*/, const ggml_tensor* /*in*/, int /*thread*/, int /*threads*/,
                void* /*data*/) {}

}  // namespace

std::string_view name_of(Operation operation) {
  static constexpr std::array<std::string_view, kNumOperations> kNames = {
      "start",   "norm",       "qkv",  "rope", "attention", "out",
      "gate_up", "activation", "down", "add",  "head"};
  return kNames[static_cast<std::size_t>(operation)];
}

double StepProfile::graph_seconds() const {
  double sum = 0;
  for (const OperationProfile& part : operations) sum += part.seconds;
  return sum;
}

std::int64_t StepProfile::graph_operations() const {
  std::int64_t sum = 0;
  for (const OperationProfile& part : operations) sum += part.count;
  return sum;
}

OperationTimer::OperationTimer(ggml_backend_t backend) : backend_(backend) {
  ggml_backend_cpu_set_abort_callback(backend_, note, this);
}

OperationTimer::~OperationTimer() {
  ggml_backend_cpu_set_abort_callback(backend_, nullptr, nullptr);
}

bool OperationTimer::note(void* timer) {
  static_cast<OperationTimer*>(timer)->ends_.push_back(Clock::now());
  return false;
}

void OperationTimer::start(ggml_cgraph* graph) {
  graph_ = graph;
  ends_.clear();
  ends_.reserve(static_cast<std::size_t>(ggml_graph_n_nodes(graph)));
  start_ = Clock::now();
}

void OperationTimer::add_to(StepProfile& profile) {
  std::vector<const ggml_tensor*> operations = operations_of(graph_, true);
  if (operations.size() != ends_.size()) operations = operations_of(graph_, false);
  if (operations.size() != ends_.size()) {
    throw Error("this ggml ran " + std::to_string(ends_.size()) + " operations for a graph of " +
                std::to_string(operations.size()) + "; they cannot be told apart");
  }
  Clock::time_point last = start_;
  for (std::size_t i = 0; i < operations.size(); ++i) {
    const ggml_tensor* node = operations[i];
    const Operation kind = i == 0 ? Operation::kStart : kind_of(node);
    OperationProfile& part = profile.operations[static_cast<std::size_t>(kind)];
    part.seconds += std::chrono::duration<double>(ends_[i] - last).count();
    part.count += 1;
    if (node->op == GGML_OP_MUL_MAT) {
      part.weight_bytes += static_cast<std::int64_t>(ggml_nbytes(node->src[0]));
      part.flops += 2.0 * static_cast<double>(node->src[0]->ne[0]) *
                    static_cast<double>(ggml_nelements(node));
    }
    last = ends_[i];
  }
}

double empty_operation_seconds(ggml_backend_t backend) {
  constexpr int kOperations = 256;
  constexpr std::size_t kRuns = 15;
  constexpr double kLongest = 0.5;  // seconds; barriers are slow where threads wait for their cores
  ggml_init_params params{};
  params.mem_size = ggml_tensor_overhead() * (kOperations + 1) +
                    ggml_graph_overhead_custom(kOperations + 1, false);
  params.no_alloc = true;
  ggml_context_ptr context(ggml_init(params));
  ggml_cgraph* graph = ggml_new_graph_custom(context.get(), kOperations + 1, false);
  ggml_tensor* x = ggml_new_tensor_1d(context.get(), GGML_TYPE_F32, 1);
  ggml_set_input(x);
  for (int i = 0; i < kOperations; ++i) {
    x = ggml_map_custom1(context.get(), x, do_nothing, GGML_N_TASKS_MAX, nullptr);
  }
  ggml_build_forward_expand(graph, x);
  ggml_gallocr_ptr allocator(ggml_gallocr_new(ggml_backend_cpu_buffer_type()));
  if (!ggml_gallocr_alloc_graph(allocator.get(), graph)) return 0;
  std::vector<double> seconds;
  double total = 0;
  while (seconds.size() < kRuns && total < kLongest) {
    const auto start = std::chrono::steady_clock::now();
    if (ggml_backend_graph_compute(backend, graph) != GGML_STATUS_SUCCESS) return 0;
    seconds.push_back(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    total += seconds.back();
  }
  const auto middle = seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2);
  std::nth_element(seconds.begin(), middle, seconds.end());
  return *middle / kOperations;
}

}  // namespace quest
