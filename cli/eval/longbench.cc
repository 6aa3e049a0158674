// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "quest/eval/longbench.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>
#include <memory>

#include "eval/eval_commands.h"
#include "eval/eval_run.h"
#include "eval/longbench_file.h"
#include "input.h"
#include "interrupt.h"
#include "list_option.h"
#include "quest/error.h"
#include "quest/eval/fingerprint.h"

namespace quest::cli {
namespace {

struct LongBenchOptions {
  EvalOptions eval;
  std::string file;
  std::string convert;
  std::string prompts;
  std::string datasets;
  std::int64_t limit = 0;
  std::int64_t max_tokens = 0;
  bool truncate = false;
};

/// Samples of one data set under one arm.
struct Row {
  std::string dataset;
  std::size_t arm = 0;
  eval::AnswerMetric metric = eval::AnswerMetric::kQaF1;
  std::int64_t samples = 0;
  std::int64_t truncated = 0;  ///< prompts that lost their middle
  std::int64_t cut = 0;        ///< answers that the token limit ended
  std::int64_t full_cut = 0;
  std::int64_t prompt_tokens = 0;
  double full = 0;  ///< sums of scores
  double score = 0;
  eval::ArmCost cost;
};

std::vector<eval::LongBenchSample> chosen_samples(const LongBenchOptions& options) {
  std::vector<std::string> wanted;
  if (!options.datasets.empty()) wanted = parse_words("--datasets", options.datasets);
  std::map<std::string, std::int64_t> taken;
  std::vector<eval::LongBenchSample> samples;
  for (eval::LongBenchSample& sample : read_longbench(options.file)) {
    const auto named = std::find(wanted.begin(), wanted.end(), sample.dataset);
    if (!wanted.empty() && named == wanted.end()) continue;
    if (options.limit > 0 && ++taken[sample.dataset] > options.limit) continue;
    if (options.max_tokens > 0) sample.max_tokens = options.max_tokens;
    if (sample.max_tokens == 0) {
      sample.max_tokens = eval::usual_answer_tokens(sample.dataset, sample.metric);
    }
    samples.push_back(std::move(sample));
  }
  if (samples.empty()) {
    throw InvalidArgument("'" + options.file + "' has no sample of --datasets " + options.datasets);
  }
  return samples;
}

/// Prompts in the context; one that does not fit is an error unless its middle may be left out.
std::vector<eval::LongBenchPrompt> fitted_prompts(const LongBenchOptions& options,
                                                  const Tokenizer& tokenizer,
                                                  const std::vector<eval::LongBenchSample>& samples,
                                                  std::int64_t context) {
  std::vector<eval::LongBenchPrompt> prompts;
  for (const eval::LongBenchSample& sample : samples) {
    const std::int64_t limit = context - sample.max_tokens;
    prompts.push_back(eval::longbench_prompt(tokenizer, sample, limit, sample.max_tokens));
    if (prompts.back().left_out == 0 || options.truncate) continue;
    throw InvalidArgument("sample '" + sample.id + "' has " +
                          std::to_string(prompts.back().tokens) + " tokens, and its answer takes " +
                          std::to_string(sample.max_tokens) + ", in a context of " +
                          std::to_string(context) +
                          "; raise -c, or leave out the middle of long prompts with --truncate");
  }
  return prompts;
}

Json pack(const eval::LongBenchSample& sample, const eval::ArmAnswer& answer) {
  return {{"text", answer.text},
          {"score", eval::longbench_score(sample, answer.text)},
          {"cut", answer.cut()},
          {"cost", pack_cost(answer.cost())}};
}

Json pack(const eval::LongBenchSample& sample, const eval::Answers& answers) {
  Json json = Json::array({pack(sample, answers.full)});
  for (const eval::ArmAnswer& answer : answers.arms) json.push_back(pack(sample, answer));
  return json;
}

void add_result(const eval::LongBenchSample& sample, const eval::LongBenchPrompt& prompt,
                const Json& result, std::size_t arm, std::vector<Row>& rows) {
  auto row = std::find_if(rows.begin(), rows.end(), [&](const Row& candidate) {
    return candidate.dataset == sample.dataset && candidate.metric == sample.metric &&
           candidate.arm == arm;
  });
  if (row == rows.end()) {
    Row fresh;
    fresh.dataset = sample.dataset;
    fresh.metric = sample.metric;
    fresh.arm = arm;
    row = rows.insert(rows.end(), fresh);
  }
  const Json& full = result.at(0);
  const Json& mine = result.at(arm + 1);
  row->samples += 1;
  row->truncated += prompt.left_out > 0;
  row->cut += mine.at("cut").get<bool>();
  row->full_cut += full.at("cut").get<bool>();
  row->prompt_tokens +=
      static_cast<std::int64_t>(prompt.request.material.size() + prompt.request.question.size());
  row->full += full.at("score").get<double>();
  row->score += mine.at("score").get<double>();
  row->cost += unpack_cost(mine.at("cost"));
}

// Scores times 100, as LongBench prints them.
double points(double sum, std::int64_t samples) { return 100 * sum / static_cast<double>(samples); }

Json row_fields(const Row& row, const eval::Arm& arm) {
  Json json = {{"dataset", row.dataset},
               {"metric", std::string(name_of(row.metric))},
               {"arm", arm.method()},
               {"budget", arm.policy.budget},
               {"question_budget", arm.question.budget},
               {"full", points(row.full, row.samples)},
               {"score", points(row.score, row.samples)},
               {"samples", row.samples},
               {"truncated", row.truncated},
               {"prompt_tokens", row.prompt_tokens},
               {"answers_cut", row.cut},
               {"full_answers_cut", row.full_cut}};
  json.update(cost_fields(row.cost, arm));
  return json;
}

std::string as_table(const std::vector<Row>& rows, const std::vector<eval::Arm>& arms) {
  const int width = name_width(arms);
  std::string table =
      format("%-16s %-8s %-*s %8s %8s %8s %8s %10s %8s %8s\n", "data set", "metric", width,
             "budget", "full", "score", "samples", "tokens", "truncated", "cut", "KV read");
  for (const Row& row : rows) {
    table += format("%-16s %-8s %-*s %8.2f %8.2f %8lld %8lld %10lld %8lld %6.1f %%\n",
                    row.dataset.c_str(), std::string(name_of(row.metric)).c_str(), width,
                    arms[row.arm].name.c_str(), points(row.full, row.samples),
                    points(row.score, row.samples), static_cast<long long>(row.samples),
                    static_cast<long long>(row.prompt_tokens / row.samples),
                    static_cast<long long>(row.truncated), static_cast<long long>(row.cut),
                    100 * row.cost.bytes_share());
  }
  return table;
}

int convert(const LongBenchOptions& options) {
  if (options.prompts.empty()) {
    throw InvalidArgument(
        "--convert needs --prompts: LongBench's config/dataset2prompt.json holds them");
  }
  Output output(options.eval.common.output);
  output.write(convert_longbench(options.convert, options.prompts));
  output.finish();
  return 0;
}

int eval_longbench(const LongBenchOptions& options) {
  if (!options.convert.empty()) return convert(options);
  if (options.file.empty()) throw InvalidArgument("FILE is missing: name a JSON-lines file");
  catch_interrupts();
  require_at_least("--limit", options.limit, 0);
  require_at_least("--tokens", options.max_tokens, 0);
  const EvalSetup setup = checked_setup(options.eval);
  const std::vector<eval::Arm>& arms = setup.arms;
  Output output(options.eval.common.output);
  const std::vector<eval::LongBenchSample> samples = chosen_samples(options);
  const auto model = load_model(options.eval.common);
  const std::int64_t context = context_limit(options.eval.common, model->info());
  const auto prompts = fitted_prompts(options, model->tokenizer(), samples, context);
  Json identity = run_identity("longbench", setup, model->info());
  identity["file"] = eval::fingerprint(read_input(options.file));
  identity["context"] = context;
  identity["max_tokens"] = options.max_tokens;

  std::int64_t cache = 0;
  for (const eval::LongBenchPrompt& prompt : prompts) {
    const eval::AnswerRequest& request = prompt.request;
    cache = std::max(cache,
                     eval::answer_cache_tokens(static_cast<std::int64_t>(request.material.size()),
                                               static_cast<std::int64_t>(request.question.size()),
                                               request.max_tokens, setup.engine.page_size));
  }
  Engine engine(model, eval_engine(setup, cache));
  std::vector<EvalItem> items;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    items.push_back({std::to_string(i) + "/" + samples[i].id,
                     static_cast<std::int64_t>(prompts[i].request.material.size()),
                     [&, i](const Progress& progress) -> std::optional<Json> {
                       const auto answers =
                           eval::answer(engine, prompts[i].request, arms, progress);
                       if (!answers) return std::nullopt;
                       return pack(samples[i], *answers);
                     }});
  }
  const std::vector<Json> results = run_items("LongBench", items, options.eval.resume, identity);
  std::vector<Row> rows;
  std::size_t finished = 0;
  Json answer_list = Json::array();
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (results[i].is_null()) continue;
    ++finished;
    for (std::size_t arm = 0; arm < arms.size(); ++arm) {
      add_result(samples[i], prompts[i], results[i], arm, rows);
    }
    Json answer = {{"id", samples[i].id},
                   {"prompt_tokens", prompts[i].tokens},
                   {"left_out", prompts[i].left_out},
                   {"answers", Json::array()}};
    for (const Json& arm : results[i]) {
      answer["answers"].push_back({{"text", arm.at("text")}, {"score", arm.at("score")}});
    }
    answer_list.push_back(std::move(answer));
  }

  Json json = common_fields(model->info(), engine.options().threads);
  Json row_list = Json::array();
  for (const Row& row : rows) {
    check_sparse(row.cost, arms[row.arm], " on " + row.dataset);
    row_list.push_back(row_fields(row, arms[row.arm]));
  }
  json["context"] = context;
  json["finish"] = finished < items.size() ? "stopped" : "end";
  json["policy"] = shared_policy_fields(engine.options());
  json["rows"] = row_list;
  json["answers"] = answer_list;
  return report(options.eval, output, json, as_table(rows, arms), finished, items.size());
}

}  // namespace

void add_eval_longbench(CLI::App& eval, int& status) {
  auto options = std::make_shared<LongBenchOptions>();
  CLI::App* command = eval.add_subcommand(
      "longbench", "Answers about long texts, scored as LongBench does, sparse and full");
  command->add_option("FILE", options->file, "Samples, one JSON object a line");
  command->add_option("--convert", options->convert,
                      "Turn this file of LongBench's own into that format instead");
  command->add_option("--prompts", options->prompts,
                      "LongBench's config/dataset2prompt.json, for --convert");
  command->add_option("--datasets", options->datasets, "Only these data sets, commas between");
  command->add_option("--limit", options->limit, "Samples of each data set at most; 0: all")
      ->capture_default_str();
  command
      ->add_option("-n,--tokens", options->max_tokens,
                   "Tokens of an answer at most; 0: the data set's own limit")
      ->capture_default_str();
  command->add_flag("--truncate", options->truncate,
                    "Leave out the middle of prompts that do not fit, as LongBench does");
  command
      ->add_option("-c,--context", options->eval.common.context,
                   "Tokens that prompt and answer may take; 0: what the model was trained for")
      ->capture_default_str();
  add_eval_options(*command, options->eval);
  add_question_budget(*command, options->eval);
  add_baseline_options(*command, options->eval);
  command->callback([options, &status] { status = eval_longbench(*options); });
}

}  // namespace quest::cli
