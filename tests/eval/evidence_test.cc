// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
// Pages of evidence, and what hand-made lists reach of it.
#include "quest/eval/evidence.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "eval/page_baselines.h"
#include "eval/toy_sequence.h"

namespace quest::eval {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::ToySequence;
using testing::ToyTensors;
using Pages = std::vector<std::int32_t>;

TEST(EvidencePages, RangesCoverTheirPagesOnce) {
  const std::vector<TokenRange> ranges = {{47, 50}, {16, 17}, {31, 32}, {48, 49}, {64, 64}};
  EXPECT_THAT(pages_of(ranges, 16), ElementsAre(1, 2, 3));
  EXPECT_THAT(pages_of(ranges, 1), ElementsAre(16, 31, 47, 48, 49));
  EXPECT_THAT(pages_of({}, 16), IsEmpty());
}

TEST(EvidencePages, AddedPagesMakeTheUnion) {
  Pages pages = {0, 4, 9};
  EXPECT_EQ(add_pages(Pages{2, 4, 7, 10}, 10, pages), 2);  // page 10 is not there yet
  EXPECT_THAT(pages, ElementsAre(0, 2, 4, 7, 9));
  EXPECT_EQ(add_pages(Pages{0, 9}, 10, pages), 0);
  EXPECT_EQ(add_pages(Pages{}, 10, pages), 0);
  EXPECT_THAT(pages, ElementsAre(0, 2, 4, 7, 9));
}

EvidenceReach reach_of(const std::vector<std::vector<Pages>>& layers,
                       const std::vector<Pages>& mentions, std::int32_t num_pages) {
  EvidenceReach reach;
  for (std::size_t layer = 0; layer < layers.size(); ++layer) {
    const std::vector<std::span<const std::int32_t>> lists(layers[layer].begin(),
                                                           layers[layer].end());
    reach.add_layer(static_cast<std::int32_t>(layer), lists, mentions, num_pages);
  }
  return reach;
}

TEST(EvidenceReach, FirstLayerIsThatOfTheFirstListWithAWholeMention) {
  const std::vector<std::vector<Pages>> layers = {
      {{0, 1, 2, 3, 4, 5}, {0, 1, 2, 3, 4, 5}},  // dense: does not count
      {{0, 5}, {0, 2, 5}},                       // half of the mention on pages 2 and 3
      {{0, 1, 5}, {0, 2, 3, 5}},                 // the second head has all of it
      {{2, 3, 5}, {4, 5}},                       // each head has another mention
      {{0, 1, 5}, {0, 3, 5}},
  };
  const EvidenceReach reach = reach_of(layers, {{2, 3}, {4}}, 6);
  EXPECT_EQ(reach.first_layer, 2);
  EXPECT_EQ(reach.lists, 8);
  EXPECT_EQ(reach.hits, 3);
  EXPECT_DOUBLE_EQ(reach.share(), 3.0 / 8);
}

TEST(EvidenceReach, NoListOrNoHitIsNoLayer) {
  const EvidenceReach never = reach_of({{{0, 5}, {1, 5}}}, {{2, 3}, {4}}, 6);
  EXPECT_FALSE(never.first_layer);
  EXPECT_EQ(never.lists, 2);
  EXPECT_EQ(never.share(), 0);
  const EvidenceReach dense = reach_of({{{0, 1, 2, 3, 4, 5}}}, {{4}}, 6);
  EXPECT_FALSE(dense.first_layer);
  EXPECT_EQ(dense.lists, 0);
  EXPECT_EQ(dense.share(), 0);
}

/// What the probe should say of the last row that the toy has read.
EvidenceReach naive_reach(const ToySequence& toy, std::int32_t row, std::int32_t num_pages,
                          const std::vector<Pages>& mentions) {
  EvidenceReach reach;
  for (std::int32_t layer = 0; layer < 2; ++layer) {
    for (std::int32_t head = 0; head < 2; ++head) {
      const Pages list = toy.pages(layer, row, head);
      if (list.size() == static_cast<std::size_t>(num_pages)) continue;
      ++reach.lists;
      bool any = false;
      for (const Pages& mention : mentions) {
        bool whole = true;
        for (const std::int32_t page : mention) {
          whole = whole && std::find(list.begin(), list.end(), page) != list.end();
        }
        any = any || whole;
      }
      if (any) ++reach.hits;
      if (any && !reach.first_layer) reach.first_layer = layer;
    }
  }
  return reach;
}

TEST(EvidenceProbe, FollowsTheLastRowOfTheLastStepWhileItWatches) {
  const ToyTensors tensors(240, 11);
  SelectionPolicy policy;
  policy.budget = 96;
  policy.sinks = 16;
  policy.window = 17;
  policy.dense_layers = 0;
  std::int64_t hits = 0;
  std::int64_t misses = 0;
  for (const int threads : {1, 2}) {
    EvidenceProbe probe;
    ToySequence toy(tensors, policy, probe.attention(), KvType::kF32, threads);
    toy.read(200, false);
    for (std::int32_t page = 0; page < 12; ++page) {
      toy.cache->truncate(toy.sequence, 200);
      const Evidence evidence = {{16 * page + 15, 16 * page + 18}, {16 * page + 3, 16 * page + 4}};
      {
        const EvidenceProbe::Watch watch(probe, evidence);
        toy.read(5, true);
        toy.read(9, true);
      }
      const EvidenceReach wanted = naive_reach(toy, 8, 14, {{page, page + 1}, {page}});
      EXPECT_EQ(probe.reach().lists, 4);
      EXPECT_EQ(probe.reach().hits, wanted.hits) << page;
      EXPECT_EQ(probe.reach().first_layer, wanted.first_layer) << page;
      hits += wanted.hits;
      misses += wanted.lists - wanted.hits;
      toy.read(1, true);  // unwatched: the figures stay
      EXPECT_EQ(probe.reach().hits, wanted.hits);
    }
  }
  EXPECT_GT(hits, 0);
  EXPECT_GT(misses, 0);
}

TEST(EvidenceProbe, DenseLayersAndRowsDoNotCount) {
  const ToyTensors tensors(240, 11);
  SelectionPolicy policy;
  policy.budget = 96;
  policy.dense_layers = 1;
  EvidenceProbe probe;
  ToySequence toy(tensors, policy, probe.attention());
  toy.read(200, false);
  const EvidenceProbe::Watch watch(probe, {{0, 1}});  // a sink: every list holds it
  toy.read(1, true);
  EXPECT_EQ(probe.reach().lists, 2);
  EXPECT_EQ(probe.reach().hits, 2);
  EXPECT_EQ(probe.reach().first_layer, 1);
  toy.read(1, false);
  EXPECT_EQ(probe.reach().lists, 0);
  EXPECT_FALSE(probe.reach().first_layer);
}

}  // namespace
}  // namespace quest::eval
