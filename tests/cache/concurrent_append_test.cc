// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "cache/kv_access.h"

namespace quest {
namespace {

using namespace quest::testing;

// Under ThreadSanitizer this also proves that the pairs share no written memory.
TEST(ConcurrentAppend, LayersHeadsAndSequencesDoNotInterfere) {
  CacheShape shape = small_shape(32);
  shape.num_layers = 3;
  shape.num_kv_heads = 3;
  KvCache cache(shape);
  poison(cache, 0xFF);
  const Rows rows(75, 64, 9);
  const std::vector<SequenceId> ids{cache.create(), cache.create(), cache.create()};
  std::int64_t position = 0;
  for (std::int64_t count : {1, 15, 1, 31, 1, 1, 25}) {
    for (SequenceId id : ids) cache.reserve(id, count);
    std::vector<std::thread> threads;
    for (int thread = 0; thread < 4; ++thread) {
      threads.emplace_back([&, thread] {
        for (int pair = thread; pair < 27; pair += 4) {
          const std::int32_t layer = pair / 9;
          const std::int32_t head = pair / 3 % 3;
          const SequenceId id = ids[static_cast<std::size_t>(pair % 3)];
          cache.append(layer, head, id, position, count, rows.k.data() + position * 64, 64,
                       rows.v.data() + position * 64, 64);
          cache.summarise(layer, head, id, position, count);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    position += count;
  }
  for (SequenceId id : ids) {
    EXPECT_EQ(cache.length(id), 75);
    EXPECT_EQ(wrong_elements(cache, id, rows), 0) << "sequence " << id;
    EXPECT_EQ(wrong_summaries(cache, id), 0) << "sequence " << id;
  }
}

}  // namespace
}  // namespace quest
