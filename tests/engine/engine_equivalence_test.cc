// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
// Different routes through the engine to the same tokens must give the same logits.
#include <gtest/gtest.h>

#include <ostream>

#include "model/engine_reader.h"
#include "model/libllama_oracle.h"
#include "model/random_tokens.h"
#include "model/tiny_gguf.h"
#include "quest/error.h"

namespace quest::testing {
namespace {

constexpr double kRounding = 1e-4;

TinyModel three_layers() {
  TinyModel model;
  model.layers = 3;
  return model;
}

/// Four pages a head with one dense layer: most of a 300-token context is left out.
EngineOptions sparse_options(std::int64_t budget = 64) {
  EngineOptions options = dense_options();
  options.policy = SelectionPolicy();
  options.policy.budget = budget;
  options.policy.sinks = 4;
  options.policy.window = 16;
  options.policy.dense_layers = 1;
  return options;
}

class EngineEquivalence : public ::testing::Test {
 protected:
  EngineEquivalence()
      : file_(three_layers()), tokens_(random_tokens(three_layers().vocabulary, 300, 21)) {}

  std::unique_ptr<Engine> engine(const EngineOptions& options) const {
    return make_engine(file_.path(), options);
  }
  std::span<const Token> tokens(std::size_t begin, std::size_t end) const {
    return std::span(tokens_).subspan(begin, end - begin);
  }
  static Agreement compare(std::span<const float> a, std::span<const float> b) {
    return compare_logits(a, b, three_layers().vocabulary);
  }

  TemporaryFile file_;
  std::vector<Token> tokens_;
};

TEST_F(EngineEquivalence, BudgetAboveTheLengthReadsTheSamePagesAsDense) {
  const auto dense = engine(dense_options());
  const auto sparse = engine(sparse_options(100000));
  const SequenceId a = dense->cache().create();
  const SequenceId b = sparse->cache().create();
  read(*dense, a, tokens(0, 270));
  read(*sparse, b, tokens(0, 270));
  ReadOptions decode;
  decode.chunk = 1;
  for (std::size_t i = 270; i < 300; ++i) {
    decode.sparse = false;
    const std::vector<float> expected = read(*dense, a, tokens(i, i + 1), decode);
    decode.sparse = true;
    const std::vector<float> logits = read(*sparse, b, tokens(i, i + 1), decode);
    ASSERT_LE(compare(expected, logits).relative, 1e-5) << "token " << i;
    const SelectedPages dense_pages = dense->attention().last_selection();
    const SelectedPages sparse_pages = sparse->attention().last_selection();
    ASSERT_EQ(dense_pages.indptr, sparse_pages.indptr) << "token " << i;
    ASSERT_EQ(dense_pages.pages, sparse_pages.pages) << "token " << i;
    ASSERT_EQ(sparse_pages.pages.size(), 2 * (i / 16 + 1)) << "token " << i;
  }
  EXPECT_EQ(sparse->counters().attention.sparse_lists, 0);
}

TEST_F(EngineEquivalence, SparseStepsReallyLeavePagesOutAndChangeTheLogits) {
  const auto full = engine(dense_options());
  const auto sparse = engine(sparse_options());
  const SequenceId a = full->cache().create();
  const SequenceId b = sparse->cache().create();
  read(*full, a, tokens(0, 290));
  read(*sparse, b, tokens(0, 290));
  sparse->reset_counters();
  ReadOptions feed;
  feed.sparse = true;
  const std::vector<float> logits = read(*sparse, b, tokens(290, 300), feed);
  feed.sparse = false;
  EXPECT_GT(compare(read(*full, a, tokens(290, 300), feed), logits).mean_kl, 1e-4);
  // Ten rows, two sparse layers, two KV heads; four pages each against nineteen.
  EXPECT_EQ(sparse->counters().attention.sparse_lists, 10 * 2 * 2);
  EXPECT_EQ(sparse->counters().attention.dense_lists, 10 * 1 * 2);
  EXPECT_EQ(sparse->counters().attention.pages_read, 10 * 2 * 2 * 4 + 10 * 2 * 19);
}

TEST_F(EngineEquivalence, SparseFeedOfManyTokensEqualsOneByOne) {
  const auto batched = engine(sparse_options());
  const auto single = engine(sparse_options());
  const SequenceId a = batched->cache().create();
  const SequenceId b = single->cache().create();
  read(*batched, a, tokens(0, 250));
  read(*single, b, tokens(0, 250));
  ReadOptions feed;
  feed.sparse = true;
  const std::vector<float> together = read(*batched, a, tokens(250, 300), feed);
  feed.chunk = 1;
  const std::vector<float> one_by_one = read(*single, b, tokens(250, 300), feed);
  EXPECT_LE(compare(one_by_one, together).relative, kRounding);
}

TEST_F(EngineEquivalence, PrefillChunksDoNotMatter) {
  const auto whole = engine(dense_options());
  const std::vector<float> expected = read(*whole, whole->cache().create(), tokens(0, 150));
  for (const std::size_t chunk : {1U, 7U, 64U, 512U}) {
    EngineOptions options = dense_options();
    options.chunk = static_cast<std::int32_t>(chunk);
    const auto chunked = engine(options);
    ReadOptions how;
    how.chunk = chunk;
    const std::vector<float> logits =
        read(*chunked, chunked->cache().create(), tokens(0, 150), how);
    EXPECT_LE(compare(expected, logits).relative, kRounding) << "chunk " << chunk;
  }
}

TEST_F(EngineEquivalence, SessionPrefillEqualsSteps) {
  EngineOptions options = dense_options();
  options.chunk = 64;
  const auto by_session = engine(options);
  const auto by_steps = engine(dense_options());
  Session session(*by_session);
  ASSERT_TRUE(session.prefill(tokens(0, 250)));
  ASSERT_TRUE(session.feed(tokens(250, 300)));
  EXPECT_EQ(session.length(), 300);
  ReadOptions last;
  last.first = 299;
  const std::vector<float> expected =
      read(*by_steps, by_steps->cache().create(), tokens(0, 300), last);
  EXPECT_LE(compare(expected, session.logits()).relative, kRounding);
}

TEST_F(EngineEquivalence, TruncateAndReadAgain) {
  const auto straight = engine(dense_options());
  const std::vector<float> expected = read(*straight, straight->cache().create(), tokens(0, 200));
  const auto detour = engine(dense_options());
  const SequenceId sequence = detour->cache().create();
  read(*detour, sequence, tokens(0, 120));
  read(*detour, sequence, tokens(200, 300));  // wrong tokens, taken back
  detour->cache().truncate(sequence, 105);
  const std::vector<float> logits = read(*detour, sequence, tokens(105, 200));
  const std::size_t width = expected.size() / 200;
  EXPECT_LE(compare(std::span(expected).subspan(105 * width), logits).relative, kRounding);
}

TEST_F(EngineEquivalence, TruncateRebuildsWhatSelectionSees) {
  const auto straight = engine(sparse_options());
  const SequenceId a = straight->cache().create();
  read(*straight, a, tokens(0, 205));
  const auto detour = engine(sparse_options());
  const SequenceId b = detour->cache().create();
  read(*detour, b, tokens(0, 205));
  read(*detour, b, tokens(240, 300));
  detour->cache().truncate(b, 205);
  ReadOptions feed;
  feed.sparse = true;
  const std::vector<float> expected = read(*straight, a, tokens(205, 240), feed);
  EXPECT_LE(compare(expected, read(*detour, b, tokens(205, 240), feed)).relative, kRounding);
}

TEST_F(EngineEquivalence, ForkedBranchesDoNotDisturbEachOther) {
  const auto forked = engine(sparse_options());
  const SequenceId parent = forked->cache().create();
  read(*forked, parent, tokens(0, 203));
  const SequenceId child = forked->cache().fork(parent);
  ReadOptions feed;
  feed.sparse = true;
  feed.chunk = 5;
  // Interleaved: parent takes one continuation, child another.
  const std::vector<float> parent_1 = read(*forked, parent, tokens(203, 223), feed);
  const std::vector<float> child_1 = read(*forked, child, tokens(250, 270), feed);
  const std::vector<float> parent_2 = read(*forked, parent, tokens(223, 243), feed);
  const auto alone = engine(sparse_options());
  const SequenceId first = alone->cache().create();
  read(*alone, first, tokens(0, 203));
  EXPECT_LE(compare(read(*alone, first, tokens(203, 223), feed), parent_1).relative, kRounding);
  EXPECT_LE(compare(read(*alone, first, tokens(223, 243), feed), parent_2).relative, kRounding);
  const SequenceId second = alone->cache().create();
  read(*alone, second, tokens(0, 203));
  EXPECT_LE(compare(read(*alone, second, tokens(250, 270), feed), child_1).relative, kRounding);
}

/// Sequences of different lengths, prefilled alike in both engines of the ragged test.
std::vector<SequenceId> prefill_ragged(Engine& engine, std::span<const Token> tokens) {
  std::vector<SequenceId> sequences;
  for (const std::size_t length : {0U, 1U, 16U, 150U, 250U}) {
    sequences.push_back(engine.cache().create());
    if (length > 0) read(engine, sequences.back(), tokens.first(length));
  }
  return sequences;
}

TEST_F(EngineEquivalence, RaggedStepEqualsSeparateSteps) {
  EngineOptions options = sparse_options();
  options.context = 2048;
  const auto together = engine(options);
  const auto apart = engine(options);
  const std::vector<SequenceId> a = prefill_ragged(*together, tokens_);
  const std::vector<SequenceId> b = prefill_ragged(*apart, tokens_);
  const std::vector<std::size_t> counts = {17, 3, 1, 1, 9};
  const std::vector<bool> sparse = {false, true, true, false, true};
  const std::vector<bool> all_logits = {true, false, false, true, true};
  std::vector<StepRequest> requests;
  std::vector<float> expected;
  for (std::size_t i = 0; i < a.size(); ++i) {
    StepRequest request;
    request.tokens = tokens(270 - counts[i], 270);
    request.sparse = sparse[i];
    request.all_logits = all_logits[i];
    request.sequence = b[i];
    const std::span<const float> logits = apart->step(std::span(&request, 1));
    expected.insert(expected.end(), logits.begin(), logits.end());
    request.sequence = a[i];
    requests.push_back(request);
  }
  const std::span<const float> logits = together->step(requests);
  EXPECT_LE(compare(expected, logits).relative, kRounding);
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(together->cache().length(a[i]), apart->cache().length(b[i]));
  }
}

TEST_F(EngineEquivalence, StepThatFindsNoPageLeavesTheSequencesAsTheyWere) {
  EngineOptions options = dense_options();
  options.context = 256;
  const auto full = engine(options);
  const SequenceId sequence = full->cache().create();
  ReadOptions last;
  last.first = 199;
  read(*full, sequence, tokens(0, 200), last);
  StepRequest request;
  request.sequence = sequence;
  request.tokens = tokens(0, 200);
  EXPECT_THROW(full->step(std::span(&request, 1)), OutOfPages);
  EXPECT_EQ(full->cache().length(sequence), 200);
  const auto other = engine(options);
  const SequenceId undisturbed = other->cache().create();
  read(*other, undisturbed, tokens(0, 200));
  EXPECT_LE(
      compare(read(*other, undisturbed, tokens(200, 240)), read(*full, sequence, tokens(200, 240)))
          .relative,
      kRounding);
}

struct PolicyCase {
  const char* name;
  GroupMode mode;
  float beta;
};

void PrintTo(const PolicyCase& c, std::ostream* out) { *out << c.name; }

class ReferenceEngine : public ::testing::TestWithParam<PolicyCase> {};

TEST_P(ReferenceEngine, CpuBackendAgreesInTheWholeModel) {
  TinyModel model = three_layers();
  model.heads = 6;
  model.kv_heads = 2;
  model.embedding = 6 * 64;
  const TemporaryFile file(model);
  EngineOptions options = sparse_options();
  options.policy.group_mode = GetParam().mode;
  options.policy.beta = GetParam().beta;
  const auto cpu = make_engine(file.path(), options);
  options.reference = true;
  const auto reference = make_engine(file.path(), options);
  const std::vector<Token> tokens = random_tokens(model.vocabulary, 230, 9);
  const std::span<const Token> all(tokens);
  const SequenceId a = reference->cache().create();
  const SequenceId b = cpu->cache().create();
  const std::vector<float> prompt_reference = read(*reference, a, all.first(200));
  const std::vector<float> prompt_cpu = read(*cpu, b, all.first(200));
  EXPECT_LE(compare_logits(prompt_reference, prompt_cpu, model.vocabulary).relative, kRounding);
  ReadOptions feed;
  feed.sparse = true;
  feed.chunk = 3;
  const std::vector<float> fed_reference = read(*reference, a, all.subspan(200), feed);
  const std::vector<float> fed_cpu = read(*cpu, b, all.subspan(200), feed);
  EXPECT_LE(compare_logits(fed_reference, fed_cpu, model.vocabulary).relative, kRounding);
  EXPECT_EQ(reference->attention().last_selection().pages, cpu->attention().last_selection().pages);
  EXPECT_EQ(reference->counters().attention.pages_read, cpu->counters().attention.pages_read);
  EXPECT_GT(cpu->counters().attention.sparse_lists, 0);
}

INSTANTIATE_TEST_SUITE_P(Modes, ReferenceEngine,
                         ::testing::Values(PolicyCase{"per_head", GroupMode::kPerHead, 0.5F},
                                           PolicyCase{"per_head_bound", GroupMode::kPerHead, 1.0F},
                                           PolicyCase{"group_max", GroupMode::kGroupMax, 0.5F},
                                           PolicyCase{"group_mean", GroupMode::kGroupMean, 0.5F},
                                           PolicyCase{"group_softmax", GroupMode::kGroupSoftmax,
                                                      0.5F},
                                           PolicyCase{"quota", GroupMode::kQuota, 0.5F}),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace quest::testing
