// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "commands.h"
#include "json_output.h"
#include "output.h"
#include "quest/error.h"

namespace quest::cli {
namespace {

struct InspectOptions {
  CommonOptions common;
  std::string model;
};

Json model_fields(const ModelInfo& info) {
  return {{"name", info.name},
          {"architecture", info.architecture},
          {"rope_scaling", info.rope_scaling},
          {"weight_types", info.weight_types},
          {"compute_types", info.compute_types},
          {"layers", info.num_layers},
          {"q_heads", info.num_q_heads},
          {"kv_heads", info.num_kv_heads},
          {"head_dim", info.head_dim},
          {"embedding", info.embedding_dim},
          {"feed_forward", info.feed_forward_dim},
          {"vocabulary", info.vocabulary},
          {"trained_context", info.context},
          {"parameters", info.parameters},
          {"weight_bytes", info.weight_bytes}};
}

Json cache_fields(const CacheShape& shape, std::int64_t context) {
  const std::int64_t heads = std::int64_t{shape.num_layers} * shape.num_kv_heads;
  return {{"context", context},
          {"page_size", shape.page_size},
          {"kv", std::string(name_of(shape.type))},
          {"summary", std::string(name_of(shape.summary_type))},
          {"kv_bytes_per_token", heads * 2 * shape.page_bytes() / shape.page_size},
          {"summary_bytes_per_page", heads * shape.summary_bytes()},
          {"summary_bytes_per_token",
           static_cast<double>(heads * shape.summary_bytes()) / shape.page_size},
          {"cache_bytes", KvCache::planned_bytes(shape)}};
}

// One "name  value" line for each field; the names are those of the JSON.
std::string as_text(const Json& json) {
  std::string text;
  for (const auto& [key, value] : json.items()) {
    std::string name = key;
    name.resize(std::max<std::size_t>(name.size() + 1, 26), ' ');
    text += name + (value.is_string() ? value.get<std::string>() : value.dump()) + "\n";
  }
  return text;
}

int inspect(InspectOptions& options) {
  if (!options.model.empty() && !options.common.model.empty()) {
    throw InvalidArgument("name the model once, either as MODEL or with -m");
  }
  if (!options.model.empty()) options.common.model = options.model;
  EngineOptions engine = engine_options(options.common);
  Output output(options.common.output);
  const auto model = load_model(options.common);
  const ModelInfo& info = model->info();
  engine.context = context_limit(options.common, info);

  Json json = common_fields(info, resolved_threads(options.common.threads));
  json.update(model_fields(info));
  json["chat_template"] = model->tokenizer().has_chat_template();
  json.update(cache_fields(cache_shape(engine, info), engine.context));
  output.write(options.common.json ? dump(json) : as_text(json));
  output.finish();
  return 0;
}

}  // namespace

void add_inspect_command(CLI::App& app, int& status) {
  auto options = std::make_shared<InspectOptions>();
  CLI::App* command =
      app.add_subcommand("inspect", "Show a model's shape and what its KV cache costs");
  command->add_option("MODEL", options->model, "GGUF file, as -m");
  add_model_options(*command, options->common);
  add_cache_options(*command, options->common);
  command->callback([options, &status] { status = inspect(*options); });
}

}  // namespace quest::cli
