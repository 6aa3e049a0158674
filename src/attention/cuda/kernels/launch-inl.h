// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdexcept>

#include "attention/cuda/device.h"
#include "attention/cuda/kernels/append-inl.h"
#include "attention/cuda/kernels/attend-inl.h"
#include "attention/cuda/kernels/combine-inl.h"
#include "attention/cuda/kernels/pages-inl.h"
#include "attention/cuda/kernels/prefill-inl.h"
#include "attention/cuda/kernels/score-inl.h"
#include "attention/cuda/kernels/select-inl.h"
#include "attention/cuda/kernels/select_long-inl.h"
#include "attention/cuda/kernels/splits-inl.h"

// Which instance of which kernel runs, with how many threads and how much shared memory. The one
// list of instances, for nvcc and for the emulator alike. After a platform header.

namespace quest::cuda {

/// Dynamic shared memory that a block can have on every architecture that is served.
inline constexpr std::size_t kMostShared = std::size_t{99} << 10;

/// Host side of a launch: calls `launch(kernel, threads, dynamic shared bytes)`, where `kernel` is
/// a __global__ function of LayerArgs.
template <class Element, int D, class Launch>
void launch_attend(const LayerArgs& args, const Launch& launch) {
  const auto with = [&]<int Heads>() {
    launch(attend<Element, D, Heads>, kAttendThreads, sizeof(AttendShared<D, Heads>));
  };
  // Fewer query heads than an instance has room for cost registers, not time.
  if (args.group == 1) return with.template operator()<1>();
  if (args.group <= 4) return with.template operator()<4>();
  if (args.group < kLeastLargeGroup) return with.template operator()<kLeastLargeGroup - 1>();
  using Shared = LargeGroupShared<D>;
  static_assert(sizeof(Shared) <= kMostShared && kMaxGroup <= kMmaRows);
  launch(attend_large_group<Element, D>, Shared::kThreads, sizeof(Shared));
}

template <class Element, int D, class Launch>
void launch_of_type(Kernel kernel, const LayerArgs& args, const Launch& launch) {
  switch (kernel) {
    case Kernel::kAppendSummarise:
      return launch(append_summarise<Element>, D, 0);
    case Kernel::kScore: {
      const std::size_t shared = score_shared_floats(args, D) * sizeof(float);
      switch (args.shape.summary_type) {
        case SummaryType::kPlain:
          return launch(score<PlainSummary<Element, D>, D>, kScoreThreads, shared);
        case SummaryType::kQ8:
          return launch(score<Q8Summary<D>, D>, kScoreThreads, shared);
        case SummaryType::kQ4:
          return launch(score<Q4Summary<D>, D>, kScoreThreads, shared);
      }
      return;
    }
    case Kernel::kCombine:
      return launch(combine, kCombineThreads, 0);
    case Kernel::kSelect:
      return launch(select, kSelectThreads, 0);
    case Kernel::kSelectRange:
      return launch(select_range, kSelectThreads, 0);
    case Kernel::kSelectHistogram:
      return launch(select_histogram, kSelectThreads, 0);
    case Kernel::kSelectNarrow:
      return launch(select_narrow, kSelectThreads, 0);
    case Kernel::kPlanSplits:
      return launch(plan_splits, kSplitsThreads, 0);
    case Kernel::kAttend:
      return launch_attend<Element, D>(args, launch);
    case Kernel::kMergeSplits:
      return launch(merge_splits<D>, D, 0);
    case Kernel::kPrefill: {
      using Shared = PrefillShared<D>;
      static_assert(sizeof(Shared) <= kMostShared);
      return launch(prefill<Element, D>, Shared::kThreads, sizeof(Shared));
    }
    case Kernel::kCopyPage:
      return launch(copy_page, kCopyThreads, 0);
    case Kernel::kPatchTables:
      return launch(patch_tables, kPatchThreads, 0);
  }
}

template <int D, class Launch>
void launch_of_size(Kernel kernel, const LayerArgs& args, const Launch& launch) {
  if (args.shape.bf16) return launch_of_type<BF16, D>(kernel, args, launch);
  launch_of_type<F16, D>(kernel, args, launch);
}

template <class Launch>
void launch_kernel(Kernel kernel, const LayerArgs& args, const Launch& launch) {
  switch (args.shape.head_dim) {
    case 64:
      return launch_of_size<64>(kernel, args, launch);
    case 128:
      return launch_of_size<128>(kernel, args, launch);
    case 256:
      return launch_of_size<256>(kernel, args, launch);
    default:
      throw std::logic_error("no CUDA kernels for head_dim " + std::to_string(args.shape.head_dim));
  }
}

}  // namespace quest::cuda
