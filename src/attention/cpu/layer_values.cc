// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
// The attend stage of LayerRun where light values are left out (SelectionPolicy::value_threshold).
// What is light is known only when the keys of the whole list are read, so each list is read in two
// passes.
#include <algorithm>
#include <cmath>

#include "attention/cpu/layer_run-inl.h"

namespace quest::cpu {

namespace {

/// Folds the greatest q·k and the sum of another part, [2, group], into those of the list.
void fold_state(const float* part, std::int32_t group, float scale, float* list) {
  for (std::int32_t h = 0; h < group; ++h) {
    const float greatest = std::max(list[h], part[h]);
    if (list[h] != part[h]) {  // equal ones may be infinite
      list[group + h] *= std::exp(scale * (list[h] - greatest));
      list[group + h] += part[group + h] * std::exp(scale * (part[h] - greatest));
    } else {
      list[group + h] += part[group + h];
    }
    list[h] = greatest;
  }
}

}  // namespace

/// Second pass over the part that `args` describes. state: [3, group], greatest and sum of the
/// whole list and room for the cuts.
void LayerRun::read_values(const List& list, const AttendArgs& args, float* runs, float* state) {
  const std::int32_t group = plan_.group;
  const std::int64_t page_size = shape_.page_size;
  const std::int64_t tokens = (list_pages(list) - 1) * page_size + list.plan.tail_tokens;
  const float share = policy_.value_threshold / static_cast<float>(tokens);
  float* const cuts = state + std::int64_t{2} * group;
  for (std::int32_t h = 0; h < group; ++h) cuts[h] = share * state[group + h];
  std::int32_t read = 0;
  kernels_.values({args, runs, state, cuts, &read});
  own_.values_left_out += args.count * page_size - read;
}

/// One list by one thread.
void LayerRun::attend_light_list(const List& list) {
  const std::int64_t pages = list_pages(list);
  const Part whole{list, 0, 0, pages, 0, pages};
  const AttendArgs args = part_args(whole);
  float* const state = own_.list_state.data();
  kernels_.logits(args, {own_.runs.data(), state, state + plan_.group});
  read_values(list, args, own_.runs.data(), state);
  finish_part(whole, args);
}

/// Few lists, their pages divided between the threads.
void LayerRun::attend_light_lists() {
  divide_lists(true);
  const std::int32_t group = plan_.group;
  const auto run_floats = [&](const Part& part) {
    return attend_runs((part.end - part.begin) * shape_.page_size) * group * kAttendLogitStride;
  };
  float* runs = own_.runs.data();
  for_each_part(true, [&](const Part& part) {
    float* const state = space_.part_state(thread_, part.index);
    kernels_.logits(part_args(part), {runs, state, state + group});
    runs += run_floats(part);
  });
  team_.wait();
  runs = own_.runs.data();
  for_each_part(true, [&](const Part& part) {
    const Sharers threads = sharers(part);
    float* const state = own_.list_state.data();
    std::copy_n(space_.part_state(threads.first, part.index), std::int64_t{2} * group, state);
    for (int t = threads.first + 1; t <= threads.last; ++t) {
      fold_state(space_.part_state(t, part.index), group, input_.scale, state);
    }
    const AttendArgs args = part_args(part);
    read_values(part.list, args, runs, state);
    finish_part(part, args);
    runs += run_floats(part);
  });
}

}  // namespace quest::cpu
