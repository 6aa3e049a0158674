// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
// A step on an emulated device, whose memory the test can read: what lies in the pool, what a graph
// would capture, and the log-sum-exp.
#include "attention/cuda/device_step.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "attention/attention_fixture.h"
#include "attention/grid_case.h"
#include "cache/page_codec.h"
#include "cuda/stepper.h"

namespace quest::test {
namespace {

/// Keys, values and summaries of a sequence on the device, bit for bit those of a cache that the
/// CPU filled with the same tokens; tail pages of every kind.
TEST(DeviceStep, Pool_HoldsTheBitsOfTheHostsCache) {
  for (const KvType type : {KvType::kF16, KvType::kBF16}) {
    for (const SummaryType summary : {SummaryType::kPlain, SummaryType::kQ8, SummaryType::kQ4}) {
      const CacheShape shape{1, 2, 64, 8, type, 8, summary};
      for (const std::int32_t tokens : {1, 7, 8, 9, 30}) {
        Stepper stepper(shape, policy_of(GroupMode::kGroupMean, 1024));
        LayerData data(shape, 1, 0, tokens, 4, Values::kUniform);
        data.k[3] = -0.0F;
        data.k[5] = 1e30F;  // infinite as f16, beyond a scale as bf16
        data.k[70] = std::nanf("");
        for (std::size_t i = 0; i < data.k.size(); i += 128) data.k[i + 32] *= 1e-9F;
        stepper.run(stepper.batch_of({{0, tokens, false}}), data);
        const cuda::LayerPool pool = stepper.device.launches.at(0).args.pool;

        KvCache host(shape);
        const SequenceId id = host.create();
        host.reserve(id, tokens);
        for (std::int32_t head = 0; head < 2; ++head) {
          const std::int64_t from = std::int64_t{head} * 64;
          host.append(0, head, id, 0, tokens, data.input.k + from, 128, data.input.v + from, 128);
          host.summarise(0, head, id, 0, tokens);
        }
        const PagedKv kv = host.layer(0);
        const auto bits = [](const std::byte* p, std::int64_t i) {
          std::uint16_t value = 0;
          std::memcpy(&value, p + 2 * i, 2);
          return value;
        };
        const auto is_nan = [&](std::uint16_t x) {
          return (x & 0x7FFF) > (type == KvType::kF16 ? 0x7C00 : 0x7F80);
        };
        for (std::int32_t t = 0; t < tokens; ++t) {
          const std::int32_t page = host.pages(id)[static_cast<std::size_t>(t / 8)];
          for (std::int32_t head = 0; head < 2; ++head) {
            for (std::int64_t j = 0; j < 64; ++j) {
              const std::int64_t place = ((page * 2 + head) * 8 + t % 8) * std::int64_t{64} + j;
              const std::uint16_t key = bits(kv.k_page(page, head), j * 8 + t % 8);
              ASSERT_TRUE(pool.k[place] == key || (is_nan(key) && is_nan(pool.k[place])))
                  << "key of token " << t << " channel " << j;
              ASSERT_EQ(pool.v[place], bits(kv.v_page(page, head), std::int64_t{t} % 8 * 64 + j));
            }
          }
        }
        for (const std::int32_t page : host.pages(id)) {
          for (std::int32_t head = 0; head < 2; ++head) {
            const std::byte* const want = kv.summary(page, head);
            const std::int64_t index = head * 8 + page;
            if (summary == SummaryType::kPlain) {
              ASSERT_EQ(std::memcmp(pool.summaries + index * 128, want, 256), 0)
                  << tokens << " tokens, page " << page << " head " << head;
            } else {
              const std::int64_t bytes = summary == SummaryType::kQ8 ? 128 : 64;
              const std::int64_t scales = summary == SummaryType::kQ8 ? 2 : 4;
              ASSERT_EQ(std::memcmp(pool.rounded_summaries + index * bytes, want,
                                    static_cast<std::size_t>(bytes)),
                        0)
                  << name_of(summary) << ' ' << tokens << " tokens, page " << page << " head "
                  << head;
              for (std::int64_t b = 0; b < scales; ++b) {
                const std::uint16_t scale = bits(want + bytes, b);
                const std::uint16_t got = pool.summary_scales[index * scales + b];
                ASSERT_TRUE(got == scale || ((got & 0x7FFF) > 0x7C00 && (scale & 0x7FFF) > 0x7C00));
              }
            }
          }
        }
      }
    }
  }
}

/// log Σ exp of the logits that a row reads, straight from the definition.
double log_sum_exp_of(const CacheShape& shape, const PagedKv& kv,
                      std::span<const std::int32_t> table, const std::vector<std::int32_t>& pages,
                      std::int64_t position, std::int32_t head, const float* q, float scale) {
  std::vector<float> keys(static_cast<std::size_t>(shape.page_elements()));
  double sum = 0;
  for (const std::int32_t p : pages) {
    decode_keys(shape, kv.k_page(table[static_cast<std::size_t>(p)], head), keys.data());
    for (std::int64_t slot = 0; slot < shape.page_size; ++slot) {
      if (std::int64_t{p} * shape.page_size + slot > position) break;
      double dot = 0;
      for (std::int64_t j = 0; j < shape.head_dim; ++j) {
        dot += double{q[j]} * keys[static_cast<std::size_t>(j * shape.page_size + slot)];
      }
      sum += std::exp(scale * dot);
    }
  }
  return std::log(sum);
}

/// Of whole lists, of lists in splits, and of the prefill kernel (SPEC S5.4).
TEST(DeviceStep, LogSumExp_IsThatOfTheTokensRead) {
  for (const auto& [group, most_splits] : {std::pair{3, 1}, {3, 64}, {8, 1}, {8, 64}}) {
    cuda::Tuning tuning;
    tuning.most_splits = most_splits;
    tuning.split_tokens = most_splits == 1 ? 1 << 20 : 1;
    const std::vector<Request> first{{0, 200, false}, {0, 61, false}};
    const std::vector<Request> second{{0, 1, true}, {0, 4, false}};
    const CacheShape shape{1, 2, 64, 16, KvType::kF16, 20};
    Stepper stepper(shape, policy_of(GroupMode::kGroupMean, 64), tuning);
    KvCache host(shape);  // the same tokens, for the definition
    std::vector<SequenceId> ids{host.create(), host.create()};
    for (const auto* requests : {&first, &second}) {
      const Batch batch = stepper.batch_of(*requests);
      LayerData data(shape, group, 0, batch.num_rows(), requests == &first ? 1 : 2,
                     Values::kUniform);
      stepper.run(batch, data);
      const SelectedPages lists = stepper.step.last_selection();
      for (std::size_t r = 0; r < 2; ++r) {
        const std::int32_t rows = (*requests)[r].rows;
        const std::int64_t before = host.length(ids[r]);
        host.reserve(ids[r], rows);
        for (std::int32_t head = 0; head < 2; ++head) {
          const std::int64_t from =
              batch.q_indptr[r] * data.input.k_stride + std::int64_t{head} * 64;
          host.append(0, head, ids[r], before, rows, data.input.k + from, 128, data.input.v + from,
                      128);
        }
        for (std::int32_t i = 0; i < rows; ++i) {
          for (std::int32_t h = 0; h < 2 * group; ++h) {
            const std::int32_t row = batch.q_indptr[r] + i;
            const auto list =
                static_cast<std::size_t>(row) * 2 + static_cast<std::size_t>(h / group);
            const std::vector<std::int32_t> pages(lists.pages.begin() + lists.indptr[list],
                                                  lists.pages.begin() + lists.indptr[list + 1]);
            const double want = log_sum_exp_of(
                shape, host.layer(0), host.pages(ids[r]), pages, before + i, h / group,
                data.input.q + row * data.input.q_stride + std::int64_t{h} * 64, data.input.scale);
            EXPECT_NEAR(stepper.log_sum_exp[static_cast<std::size_t>(row) * 2 * group + h], want,
                        2e-5)
                << "row " << row << " head " << h;
          }
        }
      }
    }
  }
}

/// A few new tokens after a long history: many blocks share what the tile reads, and find what one
/// would.
TEST(DeviceStep, ShortChunkAfterLongHistory_IsSharedByManyBlocks) {
  constexpr std::int64_t kHistory = 8000;
  for (const auto& [rows, group] : {std::pair{2, 1}, {5, 4}, {16, 4}, {16, 7}}) {
    std::vector<float> outputs[2];
    for (const bool split : {false, true}) {
      cuda::Tuning tuning;  // split: as it comes
      if (!split) tuning.split_tokens = 1 << 20;
      const CacheShape shape{1, 1, 64, 16, KvType::kF16, 600};
      Stepper stepper(shape, policy_of(GroupMode::kGroupMean, 1024), tuning);
      const SequenceId id = stepper.cache.create();
      stepper.sequences.push_back(id);
      stepper.cache.reserve(id, kHistory);
      const LayerData history(shape, 1, 0, kHistory, 6, Values::kUniform);
      stepper.cache.append(0, 0, id, 0, kHistory, history.input.k, history.input.k_stride,
                           history.input.v, history.input.v_stride);
      stepper.cache.summarise(0, 0, id, 0, kHistory);
      const Batch batch = stepper.batch_of({{0, rows, false}});
      LayerData data(shape, group, 0, rows, 7, Values::kUniform);
      stepper.run(batch, data);
      outputs[split ? 1 : 0] = data.out;

      const auto launch =
          std::find_if(stepper.device.launches.begin(), stepper.device.launches.end(),
                       [](const auto& l) { return l.kernel == cuda::Kernel::kPrefill; });
      ASSERT_NE(launch, stepper.device.launches.end());
      const std::int32_t tiles = launch->args.counts->tiles;
      const std::int32_t splits = launch->args.tile_splits.indptr[tiles];
      // Two tiles of the group of 7. The device works on 8 blocks at a time.
      EXPECT_EQ(tiles, group == 7 ? 2 : 1);
      if (split) {
        EXPECT_GE(splits, 6);
        EXPECT_GE(launch->blocks, splits);
      } else {
        EXPECT_EQ(splits, tiles);
      }
    }
    for (std::size_t i = 0; i < outputs[0].size(); i += 64) {
      ASSERT_LE(relative_error(outputs[1].data() + i, outputs[0].data() + i, 64), 1e-5)
          << rows << " rows, group " << group << ", at " << i;
    }
  }
}

/// Lists are cut into as many splits as the device works on at a time, and no more where there are
/// few lists.
TEST(DeviceStep, Splits_FillTheDeviceOnce) {
  const CacheShape shape{1, 2, 64, 8, KvType::kF16, 400};
  for (const auto& [processors, resident] : {std::pair{4, 6}, {3, 3}, {1, 1}}) {
    const emulator::DeviceOptions options{processors, resident};
    cuda::Tuning tuning;
    tuning.split_tokens = 8;
    Stepper stepper(shape, policy_of(GroupMode::kGroupMean, 64), tuning, options);
    const Batch prompts = stepper.batch_of({{0, 333, false}, {0, 40, false}});
    LayerData prompt(shape, 1, 0, prompts.num_rows(), 1, Values::kUniform);
    stepper.run(prompts, prompt);
    const Batch batch = stepper.batch_of({{0, 1, false}, {0, 1, false}});
    LayerData data(shape, 1, 0, 2, 2, Values::kUniform);
    stepper.run(batch, data);
    const auto& launches = stepper.device.launches;
    const auto launch = std::find_if(launches.begin(), launches.end(), [](const auto& l) {
      return l.kernel == cuda::Kernel::kAttend;
    });
    ASSERT_NE(launch, launches.end());
    const std::int32_t splits = launch->args.list_splits.indptr[4];
    const std::int32_t wave = processors * resident;
    EXPECT_LE(splits, std::max(wave, 4 + 1)) << wave;
    EXPECT_GE(splits, wave * 3 / 4) << wave;
  }
}

/// Between `begin` and the end of the layer nothing is copied, and the launches do not depend on
/// lengths, page tables or scores: recorded once, they do the work of another step.
TEST(DeviceStep, Launches_RecordedInOneStepServeAnother) {
  const std::vector<Request> decode{{0, 1, true}, {0, 1, true}, {0, 1, true}};
  const std::vector<Request> chunks{{0, 3, false}, {0, 1, true}, {0, 2, true}};
  for (const auto& [mode, steps, launches] : {std::tuple{GroupMode::kGroupMean, decode, 6},
                                              {GroupMode::kPerHead, decode, 6},
                                              // with combine
                                              {GroupMode::kGroupSoftmax, decode, 7},
                                              {GroupMode::kQuota, decode, 7},
                                              // with prefill
                                              {GroupMode::kGroupMean, chunks, 7}}) {
    const std::vector<Request> prompts{{0, 70, false}, {0, 100, false}, {0, 5, false}};
    const CacheShape shape{1, 2, 64, 8, KvType::kF16, 60};
    cuda::Tuning tuning;
    tuning.split_tokens = 8;
    Stepper stepper(shape, policy_of(mode, 40), tuning);
    Side reference(shape, 2, policy_of(mode, 40), make_reference_backend);
    for (int i = 0; i < 3; ++i) reference.sequences.push_back(reference.cache.create());
    const auto feed_both = [&](const std::vector<Request>& requests, std::uint32_t seed,
                               const std::vector<RecordingDevice::Launch>* recorded) {
      reference.requests = requests;
      reference.step(seed);
      const Batch batch = stepper.batch_of(requests);
      LayerData data(shape, 2, 0, batch.num_rows(), seed, Values::kUniform);
      if (recorded == nullptr) {
        stepper.run(batch, data);
        EXPECT_EQ(stepper.device.copies, 0);
      } else {
        // A graph keeps the addresses of the rows.
        const cuda::LayerArgs& args = recorded->front().args;
        std::memcpy(const_cast<float*>(args.q), data.q.data(), data.q.size() * sizeof(float));
        std::memcpy(const_cast<float*>(args.k), data.k.data(), data.k.size() * sizeof(float));
        std::memcpy(const_cast<float*>(args.v), data.v.data(), data.v.size() * sizeof(float));
        stepper.step.begin(batch, 4);
        stepper.device.replay(*recorded);
        std::memcpy(data.out.data(), args.out, data.out.size() * sizeof(float));
      }
      AttentionCounters counters;
      stepper.step.finish(counters);
      for (std::size_t i = 0; i < data.out.size(); i += 64) {
        ASSERT_LE(relative_error(data.out.data() + i, reference.outputs[0].data() + i, 64), 2e-5)
            << "seed " << seed << " at " << i;
      }
    };
    feed_both(prompts, 1, nullptr);
    feed_both(steps, 2, nullptr);

    // Recorded by hand, so that the rows stay where they are.
    reference.requests = steps;
    reference.step(3);
    const Batch batch = stepper.batch_of(steps);
    LayerData data(shape, 2, 0, batch.num_rows(), 3, Values::kUniform);
    stepper.run(batch, data);
    const std::vector<RecordingDevice::Launch> recorded = stepper.device.launches;
    // append and summarise, score, select, plan, attend, merge
    EXPECT_EQ(recorded.size(), static_cast<std::size_t>(launches));
    AttentionCounters counters;
    stepper.step.finish(counters);
    for (std::uint32_t seed = 4; seed < 14; ++seed) {
      feed_both(steps, seed, &recorded);
      if (HasFatalFailure()) return;
    }
  }
}

}  // namespace
}  // namespace quest::test
