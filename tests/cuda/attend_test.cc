// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
// The attend and prefill kernels with a query of zeros: every token that a row sees has the same
// weight, so the output is the mean of their values, which can be counted. A token too many or too
// few, a tile that was read before it arrived, or the padding of a page would show.
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "attention/grid_case.h"
#include "cuda/stepper.h"

namespace quest::test {
namespace {

/// Integers that every type stores exactly, and whose means tell lengths apart.
float value_of(std::int64_t token) { return static_cast<float>(token * 7 % 61); }

float mean_up_to(std::int64_t last) {
  double sum = 0;
  for (std::int64_t t = 0; t <= last; ++t) sum += value_of(t);
  return static_cast<float>(sum / static_cast<double>(last + 1));
}

/// Feeds `rows` tokens after `position` others in one step and expects each row's mean.
void expect_means(Stepper& stepper, std::int32_t group, std::int64_t position, std::int32_t rows) {
  const CacheShape& shape = stepper.cache.shape();
  const Batch batch = stepper.batch_of({{0, rows, false}});
  LayerData data(shape, group, 0, rows, 5, Values::kUniform);
  std::fill(data.q.begin(), data.q.end(), 0.0F);
  for (std::int64_t i = 0; i < rows; ++i) {
    std::fill_n(data.v.begin() + i * data.input.v_stride, data.input.v_stride,
                value_of(position + i));
  }
  stepper.run(batch, data);
  for (std::int64_t i = 0; i < rows; ++i) {
    const float want = mean_up_to(position + i);
    for (std::int64_t j = 0; j < data.input.out_stride; ++j) {
      ASSERT_NEAR(data.out[static_cast<std::size_t>(i * data.input.out_stride + j)], want,
                  2e-6F * want)
          << "row " << i << " of " << rows << " after " << position << " tokens, number " << j;
    }
  }
}

cuda::Tuning many_splits() {
  cuda::Tuning tuning;
  tuning.most_splits = 64;
  tuning.split_tokens = 1;
  return tuning;
}

/// One decoded token after contexts on both sides of a page, of a tile of 4096 / head_dim tokens
/// and of several tiles. The other slots of the last page hold NaN.
TEST(CudaAttend, EqualWeights_GiveTheMeanOfEveryTokenSeen) {
  for (const std::int32_t head_dim : {64, 128, 256}) {
    for (const std::int32_t page_size : {8, 64}) {
      for (const cuda::Tuning& tuning : {cuda::Tuning{}, many_splits()}) {
        const std::int64_t tile = 4096 / head_dim;
        for (const std::int64_t context :
             {std::int64_t{0}, std::int64_t{page_size} - 2, std::int64_t{page_size} - 1,
              std::int64_t{page_size}, tile - 1, tile, 3 * tile - 1, 3 * tile, 5 * tile + 3}) {
          const CacheShape shape{1, 1, head_dim, page_size, KvType::kF16, 64};
          Stepper stepper(shape, policy_of(GroupMode::kGroupMean, 4096), tuning);
          if (context > 0) expect_means(stepper, 2, 0, static_cast<std::int32_t>(context));
          expect_means(stepper, 2, context, 1);
          if (HasFatalFailure()) {
            ADD_FAILURE() << "head_dim " << head_dim << " page_size " << page_size;
            return;
          }
        }
      }
    }
  }
}

/// Rows of one request see their past and themselves, and nothing of the rows after them.
TEST(CudaPrefill, EqualWeights_EachRowSeesItsPastAndItself) {
  for (const std::int32_t head_dim : {64, 128, 256}) {
    for (const auto& [group, tuning] : {std::pair{1, cuda::Tuning{}},
                                        {3, cuda::Tuning{}},
                                        {16, cuda::Tuning{}},
                                        {3, many_splits()}}) {
      const CacheShape shape{1, 2, head_dim, 16, KvType::kBF16, 32};
      Stepper stepper(shape, policy_of(GroupMode::kGroupMean, 4096), tuning);
      std::int64_t position = 0;
      for (const std::int32_t rows : {2, 14, 17, 31, 100}) {
        expect_means(stepper, group, position, rows);
        if (HasFatalFailure()) {
          ADD_FAILURE() << "head_dim " << head_dim << " group " << group << " most splits "
                        << tuning.most_splits;
          return;
        }
        position += rows;
      }
    }
  }
}

}  // namespace
}  // namespace quest::test
