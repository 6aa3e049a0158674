// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
// The page tables on the device follow the batch, and a step sends no more of them than changed.
#include "attention/cuda/step_arrays.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "cuda/emulator/emulated_device.h"
#include "cuda/recording_device.h"
#include "quest/kv_cache.h"

namespace quest::test {
namespace {

struct Sender {
  explicit Sender(const CacheShape& shape)
      : cache(shape), device(emulator::make_device()), arrays(device) {}

  /// A new sequence of so many tokens.
  SequenceId add(std::int64_t tokens) {
    const SequenceId id = cache.create();
    cache.reserve(id, tokens);
    return id;
  }

  /// A step of `rows` new tokens a sequence. Returns the bytes that it sent.
  std::int64_t step(const std::vector<SequenceId>& ids, std::int32_t rows) {
    Batch batch;
    for (const SequenceId id : ids) {
      cache.reserve(id, rows);
      add_request(batch, cache, id, rows, true);
    }
    device.uploaded_bytes = 0;
    arrays.plan(batch, cache.shape(), 1);
    arrays.send(batch, cache.shape(), device);
    expect_tables(batch);
    return device.uploaded_bytes;
  }

  /// What every row finds on the device.
  void expect_tables(const Batch& batch) const {
    cuda::LayerArgs args;
    arrays.describe(args);
    std::int32_t row = 0;
    for (std::int32_t r = 0; r < batch.num_requests(); ++r) {
      for (std::int32_t i = 0; i < batch.num_rows(r); ++i) {
        const std::int32_t* const table = args.table + args.rows[row++].table;
        ASSERT_TRUE(std::equal(table, table + batch.num_pages(r), batch.pages(r)))
            << "request " << r;
      }
    }
  }

  KvCache cache;
  RecordingDevice device;
  cuda::StepArrays arrays;
};

/// Five sequences of 1,000 pages: their tables of 20 kB go over once.
TEST(StepArrays, Decode_SendsNoTableThatDidNotChange) {
  Sender sender({1, 1, 64, 8, KvType::kF16, 6000});
  std::vector<SequenceId> ids(5);
  for (SequenceId& id : ids) id = sender.add(8000);
  EXPECT_GT(sender.step(ids, 1), 20000);
  for (int i = 0; i < 40; ++i) {  // each takes five new pages
    EXPECT_LT(sender.step(ids, 1), 1000);
    if (HasFatalFailure()) return;
  }
  // One past the room of its table moves those after it.
  sender.cache.reserve(ids[2], 800);
  EXPECT_GT(sender.step(ids, 1), 20000);
  EXPECT_LT(sender.step(ids, 1), 1000);
}

/// Sequences that come, go, fork, are cut and change places.
TEST(StepArrays, Tables_FollowAnyBatch) {
  for (const std::uint32_t seed : {1U, 2U, 3U}) {
    std::mt19937 random(seed);
    Sender sender({1, 1, 64, 8, KvType::kF16, 300});
    std::vector<SequenceId> ids{sender.add(5)};
    for (int i = 0; i < 400; ++i) {
      const std::size_t any = random() % ids.size();
      switch (random() % 8) {
        case 0:
          if (ids.size() < 6)
            ids.push_back(sender.add(1 + static_cast<std::int64_t>(random()) % 200));
          break;
        case 1:
          if (ids.size() < 6) ids.push_back(sender.cache.fork(ids[any]));
          break;
        case 2:
          sender.cache.truncate(ids[any], sender.cache.length(ids[any]) / 2);
          break;
        case 3:
          std::shuffle(ids.begin(), ids.end(), random);
          break;
        default:
          break;
      }
      while (sender.cache.free_pages() < 60) {
        sender.cache.release(ids.back());
        ids.pop_back();
        if (ids.empty()) ids.push_back(sender.add(1));
      }
      sender.step(ids, 1 + static_cast<std::int32_t>(random() % 3));
      if (HasFatalFailure()) {
        ADD_FAILURE() << "seed " << seed << " step " << i;
        return;
      }
    }
  }
}

}  // namespace
}  // namespace quest::test
