// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "quest/attention.h"
#include "quest/kv_cache.h"
#include "quest/model.h"
#include "quest/policy.h"
#include "quest/profile.h"
#include "quest/sampler.h"

namespace quest {

struct EngineOptions {
  std::int64_t context = 0;  ///< tokens of KV cache; 0: the model's own context
  std::int32_t page_size = 16;
  KvType kv_type = KvType::kF16;
  SummaryType summary_type = SummaryType::kQ8;  ///< scans half the bytes, ranks as well
  SelectionPolicy policy;
  int threads = 0;           ///< 0: all cores
  std::int32_t chunk = 512;  ///< rows of one prefill step
  bool reference = false;    ///< scalar oracle instead of the CPU backend; tests only
};

/// The KV cache that an engine with these options allocates for this model; the context as given.
CacheShape cache_shape(const EngineOptions& options, const ModelInfo& info);

/// Seconds spent by the engine, attention's stages apart.
struct EngineCounters {
  AttentionCounters attention;
  double step_seconds = 0;  ///< whole forward steps, attention included
  std::int64_t steps = 0;
  std::int64_t rows = 0;
};

/// One request of a step.
struct StepRequest {
  SequenceId sequence = 0;
  std::span<const Token> tokens;  ///< at least one, appended to the sequence
  bool sparse = true;             ///< per-position selection; false: dense causal
  bool all_logits = false;        ///< logits of every token instead of the last alone
};

/// Turns tokens into logits over the paged cache: builds a ragged batch, runs the model's graph
/// with ggml's threads, calls the attention operator at each layer. Not thread-safe.
class Engine {
 public:
  /// Throws InvalidArgument for options that do not fit the model.
  Engine(std::shared_ptr<const Model> model, const EngineOptions& options);
  ~Engine();

  const Model& model() const;
  const EngineOptions& options() const;  ///< with the defaults filled in
  KvCache& cache();

  /// Runs one step and returns logits [outputs, vocabulary] in request order, valid until the next
  /// step. Requests may have at most `chunk` tokens in total. If it throws, the sequences are as
  /// they were: OutOfPages when the cache is full, InvalidArgument for bad requests.
  std::span<const float> step(std::span<const StepRequest> requests);

  /// The selection policy of the steps to come. Throws InvalidArgument; the old one then stays.
  void set_policy(const SelectionPolicy& policy);

  const EngineCounters& counters() const;
  /// Sets counters and profile to zero.
  void reset_counters();

  /// Whether the steps to come note when each of their operations ends (one look at the clock
  /// each).
  void set_profiling(bool on);
  /// Of the steps that were profiled since the last reset.
  const StepProfile& profile() const;

  const AttentionBackend& attention() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Called after each chunk with tokens done and tokens in all; false stops.
using Progress = std::function<bool(std::int64_t done, std::int64_t total)>;

enum class FinishReason { kEndOfText, kLength, kContextFull, kStopped };
/// "end", "length", "context", "stopped".
std::string_view name_of(FinishReason reason);

struct GenerateOptions {
  std::int64_t max_tokens = 256;
  SamplingOptions sampling;
  bool ignore_end = false;  ///< go on past end-of-text tokens (benchmarks)
  /// Called with each token's text as it appears, whole UTF-8 characters only; false stops.
  std::function<bool(std::string_view text)> on_text;
};

struct Generation {
  std::vector<Token> tokens;
  std::string text;
  FinishReason finish = FinishReason::kLength;
  double seconds = 0;       ///< decode steps alone
  std::int64_t steps = 0;   ///< decode steps behind `seconds`
  EngineCounters counters;  ///< of the decode steps alone
};

/// One conversation: a sequence in an engine's cache and the logits at its end.
class Session {
 public:
  explicit Session(Engine& engine);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  /// Reads tokens with full attention, chunk by chunk (SPEC S5.5). False if `progress` stopped it.
  bool prefill(std::span<const Token> tokens, const Progress& progress = {});
  /// Reads tokens through the sparse path, each position with pages of its own (SPEC S9.1).
  bool feed(std::span<const Token> tokens, const Progress& progress = {});
  /// Samples and decodes until the end. Needs at least one token read before. The last token may
  /// not be in the cache yet when it returns; the next read or `generate` puts it there first.
  Generation generate(const GenerateOptions& options);
  /// Forgets everything from token `length` on. The next read must come before `generate`.
  void truncate(std::int64_t length);

  std::int64_t length() const;
  std::span<const float> logits() const;  ///< [vocabulary], after the last token read
  SequenceId sequence() const { return sequence_; }

 private:
  bool read(std::span<const Token> tokens, bool sparse, const Progress& progress);
  void step(std::span<const Token> tokens, bool sparse);
  void read_last_generated();

  Engine& engine_;
  SequenceId sequence_;
  std::vector<float> logits_;
  std::optional<Token> unread_;  ///< generated but not yet in the cache
};

}  // namespace quest
