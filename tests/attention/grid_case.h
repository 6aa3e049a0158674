// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "attention/cpu_harness.h"

// A backend against the reference: shapes, policies and batches to be sampled.
namespace quest::test {

/// Relative error of one head's output.
inline constexpr double kTolerance = 2e-5;

/// One cell of the grid that every backend must pass.
struct GridCase {
  CacheShape shape;
  std::int32_t group = 1;
  SelectionPolicy policy;
  std::vector<Request> requests;
  int threads = 1;
  int steps = 1;
  Values values = Values::kUniform;
  std::uint32_t seed = 1;
  double tolerance = kTolerance;

  std::string describe() const {
    std::ostringstream text;
    text << "page_size " << shape.page_size << " head_dim " << shape.head_dim << " kv_heads "
         << shape.num_kv_heads << " group " << group << " type " << name_of(shape.type)
         << " summary " << name_of(shape.summary_type) << " mode " << name_of(policy.group_mode)
         << " dense " << policy.dense << " certificate " << to_string(policy.certificate)
         << " value_threshold " << policy.value_threshold << " budget " << policy.budget
         << " threads " << threads << " seed " << seed << " requests";
    for (const Request& r : requests) {
      text << ' ' << r.history << '+' << r.rows << (r.sparse ? "s" : "d");
    }
    return text.str();
  }
};

/// Page lists compared, and those that were not the same.
struct Tally {
  int lists = 0;
  int different = 0;
};

/// Compares one layer; rows whose page lists differ are counted, and their outputs left alone.
inline void compare_layer(const Side& got, const Side& want, std::size_t layer,
                          const GridCase& grid, Tally& tally) {
  const CacheShape& shape = got.cache.shape();
  const std::int32_t group = grid.group;
  const SelectedPages& a = got.selections[layer];
  const SelectedPages& b = want.selections[layer];
  ASSERT_EQ(a.indptr.size(), b.indptr.size());
  for (std::size_t list = 0; list + 1 < a.indptr.size(); ++list) {
    ++tally.lists;
    const bool same =
        std::equal(a.pages.begin() + a.indptr[list], a.pages.begin() + a.indptr[list + 1],
                   b.pages.begin() + b.indptr[list], b.pages.begin() + b.indptr[list + 1]);
    if (!same) {
      ++tally.different;
      continue;
    }
    for (std::int32_t h = 0; h < group; ++h) {
      const std::size_t offset =
          (list * static_cast<std::size_t>(group) + static_cast<std::size_t>(h)) *
          static_cast<std::size_t>(shape.head_dim);
      const double error = relative_error(got.outputs[layer].data() + offset,
                                          want.outputs[layer].data() + offset, shape.head_dim);
      ASSERT_LE(error, grid.tolerance) << "layer " << layer << " list " << list << " head " << h;
    }
  }
}

/// Runs the case on the backend and on the reference and compares outputs, lists and counters.
inline void check(const GridCase& grid, Side::Make make, Tally& tally) {
  SCOPED_TRACE(grid.describe());
  Side side(grid.shape, grid.group, grid.policy, make, grid.threads, grid.values);
  Side reference(grid.shape, grid.group, grid.policy, make_reference_backend, 1, grid.values);
  for (std::size_t i = 0; i < grid.requests.size(); ++i) {
    const auto seed = grid.seed + 1000 * static_cast<std::uint32_t>(i);
    side.add(grid.requests[i], seed);
    reference.add(grid.requests[i], seed);
  }
  for (int step = 0; step < grid.steps; ++step) {
    const auto seed = grid.seed + 77777 * static_cast<std::uint32_t>(step + 1);
    side.step(seed);
    reference.step(seed);
    const int different = tally.different;
    for (std::size_t layer = 0; layer < side.outputs.size(); ++layer) {
      compare_layer(side, reference, layer, grid, tally);
      if (testing::Test::HasFatalFailure()) return;
    }
    // Unions of different lists may differ in size.
    if (tally.different == different) {
      EXPECT_TRUE(equal_counts(side.backend->counters(), reference.backend->counters()));
    }
  }
}

inline SelectionPolicy policy_of(GroupMode mode, std::int64_t budget) {
  SelectionPolicy policy;
  policy.group_mode = mode;
  policy.budget = budget;
  policy.dense_layers = 0;
  policy.sinks = 4;
  policy.window = 12;
  policy.beta = 0.5F;
  policy.crossover = 1;
  return policy;
}

template <class T, std::size_t N>
T pick(const T (&from)[N], std::mt19937& random) {
  return from[random() % N];
}

/// Gives the case this shape, with the pages that it needs, and requests of one row: every tail
/// length, sparse or dense by chance, a request's first token, and a request without rows.
inline void take_every_tail(GridCase& grid, const CacheShape& shape, std::mt19937& random) {
  const std::int32_t size = shape.page_size;
  const std::int64_t pages = 5 + static_cast<std::int64_t>(random() % 3);
  for (const std::int64_t tail : {1, size - 1, size, size + 1}) {
    grid.requests.push_back({pages * size + tail - 1, 1, random() % 4 != 0});
  }
  grid.requests.push_back({0, 1, true});
  grid.requests.push_back({pages, 0, true});
  grid.shape = shape;
  grid.shape.num_pages = pages_needed(grid.requests, size);
}

}  // namespace quest::test
