// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common_options.h"
#include "json_output.h"
#include "output.h"
#include "quest/eval/arm.h"
#include "quest/eval/statistics.h"

namespace CLI {
class App;
}

namespace quest::cli {

/// What all evaluations share.
struct EvalOptions {
  CommonOptions common;  ///< its budget and context are not set by flags
  std::string budgets;   ///< with commas between; empty: the policy's own
  std::optional<std::int64_t> question_budget;
  std::string resume;
  std::string baselines;  ///< names with commas between, or "all"
  std::uint64_t baseline_seed = 1;
};

/// Model, storage and selection options, --budget LIST, --certify, --dense, --resume; --seed is the
/// command's.
void add_eval_options(CLI::App& app, EvalOptions& options);
/// --baselines, --baseline-seed.
void add_baseline_options(CLI::App& app, EvalOptions& options);
void add_question_budget(CLI::App& app, EvalOptions& options);

/// What an evaluation runs.
struct EvalSetup {
  EngineOptions engine;         ///< its policy is that of the options, its context not set
  std::vector<eval::Arm> arms;  ///< one a budget, each followed by its baselines
  std::shared_ptr<eval::Baselines> baselines;  ///< that the arms share
};

/// Checks every option as `engine_options` does; throws InvalidArgument, or Error for --dense: an
/// evaluation always runs full attention alongside, and needs a sparse arm.
EvalSetup checked_setup(const EvalOptions& options);

/// The engine's options with a cache of `tokens`.
EngineOptions eval_engine(const EvalSetup& setup, std::int64_t tokens);

/// Refuses prompts beyond what the model was trained for, unless --long-context.
void check_context(const EvalOptions& options, std::int64_t tokens, const ModelInfo& info);

/// Throws Error if the arm read as many bytes as full attention: its figures would be those of full
/// attention under another name. An arm with a certificate may: what that took is its result.
/// `where` adds to the message.
void check_sparse(const eval::ArmCost& cost, const eval::Arm& arm, const std::string& where = "");

/// What tells this run from others: command, model, policy. Commands add their own fields.
Json run_identity(const char* command, const EvalSetup& setup, const ModelInfo& info);

/// The policy without what differs between the arms.
Json shared_policy_fields(const EngineOptions& options);

/// kv_bytes_share, kv_bytes_share_without_summaries, bytes_read, pages_read, sparse_lists,
/// dense_lists, fallback_lists, tokens_per_second, seconds; certificate where the arm has one.
Json cost_fields(const eval::ArmCost& cost, const eval::Arm& arm);

/// [low, high], or null.
Json interval_fields(const std::optional<eval::Interval>& interval);

// Costs on their way through a resume file.
Json pack_cost(const eval::ArmCost& cost);
eval::ArmCost unpack_cost(const Json& json);

/// One piece of work that is finished or not.
struct EvalItem {
  std::string name;
  std::int64_t tokens = 0;  ///< that its progress counts to
  /// Nothing if the progress stopped it.
  std::function<std::optional<Json>(const Progress&)> run;
};

/// Runs the items with a progress bar, those in the resume file apart, until done or Ctrl-C.
/// Returns the results of the finished ones; others are null.
std::vector<Json> run_items(const std::string& label, const std::vector<EvalItem>& items,
                            const std::string& resume_path, const Json& identity);

/// Writes the result, as JSON or as the table, and returns the exit status. After Ctrl-C there may
/// be nothing to write: `finished` is the number of finished items.
int report(const EvalOptions& options, Output& output, const Json& json, const std::string& table,
           std::size_t finished, std::size_t items);

/// Characters of the longest arm's name, and of the headings over it, at least.
int name_width(const std::vector<eval::Arm>& arms);

/// printf into a string.
[[gnu::format(printf, 1, 2)]] std::string format(const char* pattern, ...);

}  // namespace quest::cli
