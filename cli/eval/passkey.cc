// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "quest/eval/passkey.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>

#include "eval/eval_commands.h"
#include "eval/eval_run.h"
#include "eval/injection.h"
#include "eval/passkey_rows.h"
#include "filler_text.h"
#include "input.h"
#include "interrupt.h"
#include "list_option.h"
#include "quest/error.h"
#include "quest/eval/fingerprint.h"

namespace quest::cli {
namespace {

struct PasskeyOptions {
  EvalOptions eval;
  std::string haystack;
  std::string lengths = "2048";
  std::string depths = "0.1,0.5,0.9";
  std::string places = "start,middle,end";
  std::string variants = "plain,distractors,reversal,evidence";
  std::int64_t seeds = 1;
  std::uint64_t seed = 1;
  std::int64_t max_tokens = 40;
  std::string inject;
};

std::vector<eval::PasskeyTrial> trials_of(const PasskeyOptions& options) {
  std::vector<eval::PasskeyVariant> variants;
  for (const std::string& word : parse_words("--variant", options.variants)) {
    const auto variant = eval::parse_passkey_variant(word);
    if (!variant) {
      throw InvalidArgument("--variant '" + word +
                            "' is unknown; use plain, distractors, reversal or evidence");
    }
    variants.push_back(*variant);
  }
  std::vector<eval::PagePlace> places;
  for (const std::string& word : parse_words("--place", options.places)) {
    const auto place = eval::parse_page_place(word);
    if (!place) {
      throw InvalidArgument("--place '" + word + "' is unknown; use start, middle or end");
    }
    places.push_back(*place);
  }
  std::vector<eval::PasskeyTrial> trials;
  for (const eval::PasskeyVariant variant : variants) {
    for (const std::int64_t length : parse_list("--length", options.lengths, "tokens")) {
      for (const double depth : parse_shares("--depth", options.depths)) {
        for (const eval::PagePlace place : places) {
          for (std::int64_t i = 0; i < options.seeds; ++i) {
            trials.push_back(
                {length, depth, place, variant, options.seed + static_cast<std::uint64_t>(i)});
          }
        }
      }
    }
  }
  return trials;
}

std::string item_name(const eval::PasskeyTrial& trial) {
  return format("%s/%lld/%g/%s/%llu", std::string(name_of(trial.variant)).c_str(),
                static_cast<long long>(trial.length), trial.depth,
                std::string(name_of(trial.place)).c_str(),
                static_cast<unsigned long long>(trial.seed));
}

/// Text of at least as many tokens as the longest prompt, when there is no file.
std::string haystack_text(const PasskeyOptions& options, std::int64_t longest) {
  if (!options.haystack.empty()) return read_input(options.haystack);
  constexpr std::int64_t kShortestSentence = 8;  // tokens; every word is one at least
  return filler_text(static_cast<std::size_t>(longest / kShortestSentence + 1), options.seed);
}

std::vector<EvalItem> items_of(const PasskeyOptions& options,
                               const std::vector<eval::PasskeyTrial>& trials, Engine& engine,
                               const eval::Haystack& haystack, const std::vector<eval::Arm>& arms,
                               eval::EvidenceProbe& probe) {
  std::vector<EvalItem> items;
  items.reserve(trials.size());
  for (const eval::PasskeyTrial& trial : trials) {
    items.push_back(
        {item_name(trial), trial.length, [&](const Progress& progress) -> std::optional<Json> {
           const auto prompt = eval::passkey_prompt(engine.model().tokenizer(), haystack, trial,
                                                    engine.options().page_size);
           eval::AnswerRequest request = eval::passkey_request(prompt, options.max_tokens);
           request.probe = &probe;
           const auto answers = eval::answer(engine, request, arms, progress);
           if (!answers) return std::nullopt;
           return pack_answers(prompt, *answers);
         }});
  }
  return items;
}

/// What was written, full attention first, to see how answers fail.
Json answer_fields(const std::string& item, const Json& result) {
  Json fields = {{"item", item}, {"keys", result.at("keys")}, {"answers", Json::array()}};
  for (const Json& answer : result.at("answers")) fields["answers"].push_back(answer.at("text"));
  return fields;
}

int eval_passkey(const PasskeyOptions& options) {
  catch_interrupts();
  require_at_least("--seeds", options.seeds, 1);
  require_at_least("-n", options.max_tokens, 1);
  const std::vector<eval::PasskeyTrial> trials = trials_of(options);
  const auto injection = parse_injection(options.inject);
  EvalSetup setup = checked_setup(options.eval);
  std::int64_t longest = 0;
  for (const eval::PasskeyTrial& trial : trials) longest = std::max(longest, trial.length);
  Output output(options.eval.common.output);
  const auto model = load_model(options.eval.common);
  check_context(options.eval, longest + options.max_tokens, model->info());
  add_injection_arms(injection, model->info(), setup);
  const std::vector<eval::Arm>& arms = setup.arms;
  const std::string text = haystack_text(options, longest);
  const eval::Haystack haystack(model->tokenizer(), text);
  Json identity = run_identity("passkey", setup, model->info());
  identity["haystack"] = eval::fingerprint(text);
  identity["max_tokens"] = options.max_tokens;
  identity["evidence"] = "the question's last token";
  const std::int32_t page_size = setup.engine.page_size;
  for (const eval::PasskeyTrial& trial : trials) {  // too short a length is refused before any work
    eval::passkey_prompt(model->tokenizer(), haystack, trial, page_size);
  }

  EngineOptions engine_options = eval_engine(
      setup, eval::answer_cache_tokens(longest, longest, options.max_tokens, page_size));
  eval::EvidenceProbe probe;
  engine_options.attention = probe.attention(engine_options.attention);
  Engine engine(model, engine_options);
  const std::vector<EvalItem> items = items_of(options, trials, engine, haystack, arms, probe);
  const std::vector<Json> results = run_items("Pass key", items, options.eval.resume, identity);
  std::vector<PasskeyRow> rows;
  std::size_t finished = 0;
  Json answers = Json::array();
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (results[i].is_null()) continue;
    ++finished;
    const std::vector<PasskeyOutcome> outcomes = unpack_outcomes(results[i]);
    for (std::size_t arm = 0; arm < arms.size(); ++arm) add_outcome(trials[i], outcomes, arm, rows);
    answers.push_back(answer_fields(items[i].name, results[i]));
  }
  Json json = common_fields(model->info(), engine.options().threads);
  json.update(row_fields(rows, arms));
  json["finish"] = finished < items.size() ? "stopped" : "end";
  json["policy"] = shared_policy_fields(engine.options());
  json["answers"] = answers;
  return report(options.eval, output, json, row_table(rows, arms), finished, items.size());
}

}  // namespace

void add_eval_passkey(CLI::App& eval, int& status) {
  auto options = std::make_shared<PasskeyOptions>();
  CLI::App* command = eval.add_subcommand(
      "passkey", "Whether a number told once in a long text is found, sparse and full");
  command->add_option("--haystack", options->haystack,
                      "Text file around the key [built-in filler]");
  command->add_option("--length", options->lengths, "Prompt lengths in tokens, commas between")
      ->capture_default_str();
  command->add_option("--depth", options->depths, "Depths of the key, 0 to 1, commas between")
      ->capture_default_str();
  command->add_option("--place", options->places, "Places of the key in its page, commas between")
      ->capture_default_str();
  command->add_option("--variant", options->variants, "What stands beside the key, commas between")
      ->capture_default_str();
  command->add_option("--seeds", options->seeds, "Keys and filler orders of each kind of trial")
      ->capture_default_str();
  command->add_option("--seed", options->seed, "The first seed")->capture_default_str();
  command->add_option("-n,--tokens", options->max_tokens, "Tokens of an answer at most")
      ->capture_default_str();
  command->add_option(
      "--inject", options->inject,
      "Layers whose page lists the key's pages are forced into, beside every budget: "
      "all, or FROM-TO counted from 0; several with commas between");
  add_eval_options(*command, options->eval);
  add_question_budget(*command, options->eval);
  add_baseline_options(*command, options->eval);
  command->callback([options, &status] { status = eval_passkey(*options); });
}

}  // namespace quest::cli
