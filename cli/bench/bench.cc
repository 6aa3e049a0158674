// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "bench/bench_commands.h"
#include "bench/list_option.h"
#include "bench/random_model.h"
#include "bench/table.h"
#include "commands.h"
#include "common_options.h"
#include "interrupt.h"
#include "json_output.h"
#include "output.h"
#include "quest/error.h"

namespace quest::cli {
namespace {

struct MakeModelOptions {
  CommonOptions common;
  std::string shape;
  std::string path;
  std::string type = "q4_0";
};

ggml_type checked_type(const std::string& name) {
  for (const ggml_type type :
       {GGML_TYPE_F16, GGML_TYPE_Q8_0, GGML_TYPE_Q4_0, GGML_TYPE_Q4_1, GGML_TYPE_F32}) {
    if (name == ggml_type_name(type)) return type;
  }
  throw InvalidArgument("--type '" + name + "' is not available; use f16, q8_0, q4_0, q4_1 or f32");
}

int make_model(const MakeModelOptions& options) {
  constexpr std::int64_t kLongestContext = 1 << 24;
  RandomModelOptions model;
  model.shape = &model_shape(options.shape, "--make-model");
  model.type = checked_type(options.type);
  model.context = options.common.context;
  require_at_least("--context", model.context, 0);
  if (model.context > kLongestContext) {
    throw InvalidArgument("--context " + std::to_string(model.context) + " must be at most " +
                          std::to_string(kLongestContext));
  }
  require_at_least("--threads", options.common.threads, 0);
  if (options.path.empty()) {
    throw InvalidArgument("--make-model needs --out FILE, the file to write");
  }
  catch_interrupts();
  model.path = options.path;
  model.threads = resolved_threads(options.common.threads);
  Output output(options.common.output);
  // Loading checks the file that lends its tokenizer.
  CommonOptions lender = options.common;
  lender.reencode = false;
  model.tokenizer = load_model(lender)->info().path;
  const RandomModelResult result = write_random_model(model);
  if (!result.complete) return kInterruptedStatus;
  if (options.common.json) {
    ModelInfo info;
    info.path = options.path;
    Json json = common_fields(info, model.threads);
    json["name"] = result.name;
    json["shape"] = model.shape->name;
    json["type"] = options.type;
    json["context"] = result.context;
    json["vocabulary"] = result.vocabulary;
    json["parameters"] = result.parameters;
    json["file_bytes"] = result.bytes;
    output.write(dump(json));
  } else {
    output.write(options.path + ": " + result.name + ", " + options.type + ", " +
                 fixed(static_cast<double>(result.parameters) * 1e-6, 1) + " M parameters, " +
                 fixed(static_cast<double>(result.bytes) * 1e-6, 1) + " MB\n");
  }
  output.finish();
  return 0;
}

}  // namespace

void add_bench_command(CLI::App& app, int& status) {
  auto options = std::make_shared<MakeModelOptions>();
  CLI::App* bench = app.add_subcommand("bench", "Measure speed");
  bench->require_subcommand(0, 1);
  CLI::Option* make = bench->add_option(
      "--make-model", options->shape,
      "Write a model of this well-known shape with random weights instead of measuring");
  bench->add_option("--out", options->path, "The file to write; it must not exist")->needs(make);
  bench->add_option("--type", options->type, "Type of its matrices: f16, q8_0, q4_0, q4_1 or f32")
      ->capture_default_str()
      ->needs(make);
  bench
      ->add_option("--context", options->common.context,
                   "Context that it names as trained (default: the shape's)")
      ->needs(make);
  bench
      ->add_option("-m,--model", options->common.model,
                   "GGUF file that lends its tokenizer (default: the packaged model)")
      ->needs(make);
  bench->add_option("-t,--threads", options->common.threads, "Threads; 0: all cores")->needs(make);
  bench->add_flag("--json", options->common.json, "Print one JSON object on stdout")->needs(make);
  for (CLI::App* measuring : {add_bench_attention(*bench, status), add_bench_decode(*bench, status),
                              add_bench_profile(*bench, status), add_bench_sweep(*bench, status)}) {
    measuring->excludes(make);
  }
  bench->callback([options, bench, make, &status] {
    if (make->count() > 0) {
      status = make_model(*options);
    } else if (bench->get_subcommands().empty()) {
      throw InvalidArgument("bench needs attention, decode, profile, sweep or --make-model NAME");
    }
  });
}

}  // namespace quest::cli
