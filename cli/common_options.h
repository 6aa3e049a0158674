// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "quest/engine.h"

namespace CLI {
class App;
}

namespace quest::cli {

/// The options that several subcommands share, as the user wrote them. What is not given keeps the
/// profile's value, or the library's default.
struct CommonOptions {
  std::string model;  ///< empty: the packaged model
  int threads = 0;
  bool reencode = true;
  bool json = false;
  bool verbose = false;
  std::string output;  ///< empty: standard output

  std::string device = "cpu";  ///< where the KV cache and attention are: cpu or cuda

  std::int64_t context = 0;  ///< 0: what the model was trained for
  bool long_context = false;
  std::optional<std::int32_t> page_size;
  std::string kv = std::string(name_of(EngineOptions{}.kv_type));
  std::optional<std::string> summary;
  std::int32_t chunk = EngineOptions{}.chunk;

  /// Empty: the packaged profile of this model, if there is one; "none": none.
  std::string profile;
  std::optional<std::int64_t> budget;
  std::optional<std::int32_t> sinks;
  std::optional<std::int32_t> window;
  std::optional<std::int32_t> dense_layers;
  std::optional<std::string> gqa;
  std::optional<float> beta;
  std::optional<float> value_threshold;
  std::optional<float> crossover;
  bool dense = false;
  bool paper = false;
  std::optional<std::string> certify;

  SamplingOptions sampling;
};

/// -m, -t, --no-reencode, --json, -o, -v.
void add_model_options(CLI::App& app, CommonOptions& options);
/// --long-context, --page-size, --kv, --summary, --chunk.
void add_storage_options(CLI::App& app, CommonOptions& options);
/// --page-size.
void add_page_size_option(CLI::App& app, CommonOptions& options);
/// --summary.
void add_summary_option(CLI::App& app, CommonOptions& options);
/// --device.
void add_device_option(CLI::App& app, CommonOptions& options);
/// -c and the storage options.
void add_cache_options(CLI::App& app, CommonOptions& options);
/// --profile, --sinks, --window, --dense-layers, --gqa, --beta, --value-threshold, --crossover,
/// --paper.
void add_selection_options(CLI::App& app, CommonOptions& options);
/// --certify.
void add_certificate_option(CLI::App& app, CommonOptions& options);
/// --budget, --dense, --certify and the selection options.
void add_policy_options(CLI::App& app, CommonOptions& options);
/// --temperature, --top-k, --top-p, --min-p, --seed.
void add_sampling_options(CLI::App& app, CommonOptions& options);

/// Checks every option against what no model could accept and returns the engine's options, the
/// context still as given. Throws InvalidArgument naming the flag.
EngineOptions engine_options(const CommonOptions& options);

/// The engine's policy with another --budget. Throws InvalidArgument for less than a page.
SelectionPolicy policy_for_budget(const EngineOptions& engine, std::int64_t budget);

/// The budget while a question is read: --question-budget, or four times the answer's. Throws
/// InvalidArgument for less than a page.
std::int64_t checked_question_budget(const std::optional<std::int64_t>& given, std::int64_t budget,
                                     std::int32_t page_size);

/// Throws InvalidArgument naming `flag` unless `value` is at least `minimum`.
void require_at_least(const char* flag, std::int64_t value, std::int64_t minimum);

/// Throws InvalidArgument naming `flag` if `value` is above `maximum`.
void require_at_most(const char* flag, std::int64_t value, std::int64_t maximum);

/// Loads the chosen model. Throws InvalidArgument without a model, else as Model::load.
std::shared_ptr<const Model> load_model(const CommonOptions& options);

/// Tokens that may be used at most: -c, or what the model was trained for. Throws InvalidArgument
/// for a -c beyond that unless the user insists.
std::int64_t context_limit(const CommonOptions& options, const ModelInfo& info);

}  // namespace quest::cli
