// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "quest/eval/passkey.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <memory>

#include "eval/eval_commands.h"
#include "eval/eval_run.h"
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
};

/// A trial's outcome, in the order of the arms, full attention first.
struct Outcome {
  std::vector<eval::AnswerClass> classes;
  std::vector<eval::ArmCost> questions;
  std::vector<eval::ArmCost> answers;
};

/// Trials of one variant, length and depth under one arm.
struct Row {
  eval::PasskeyVariant variant = eval::PasskeyVariant::kPlain;
  std::int64_t length = 0;
  double depth = 0;
  std::size_t arm = 0;
  std::int64_t trials = 0;
  std::int64_t full_hits = 0;
  std::int64_t full_truncated = 0;
  std::int64_t hits = 0;
  std::int64_t hits_where_full = 0;
  std::int64_t truncated = 0;
  std::array<std::int64_t, 3> place_trials{};
  std::array<std::int64_t, 3> place_hits{};
  eval::ArmCost question;
  eval::ArmCost answer;

  eval::ArmCost cost() const {
    eval::ArmCost sum = question;
    sum += answer;
    return sum;
  }
};

constexpr eval::PagePlace kPlaces[] = {eval::PagePlace::kStart, eval::PagePlace::kMiddle,
                                       eval::PagePlace::kEnd};

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

Json pack(const eval::PasskeyPrompt& prompt, const eval::ArmAnswer& answer) {
  return {{"class", static_cast<int>(eval::classify(answer, prompt.keys))},
          {"text", answer.text},
          {"question", pack_cost(answer.question)},
          {"answer", pack_cost(answer.answer)}};
}

Json pack(const eval::PasskeyPrompt& prompt, const eval::Answers& answers) {
  Json json = {{"keys", prompt.keys},
               {"tokens", prompt.material.size() + prompt.question.size()},
               {"answers", Json::array({pack(prompt, answers.full)})}};
  for (const eval::ArmAnswer& answer : answers.arms)
    json["answers"].push_back(pack(prompt, answer));
  return json;
}

Outcome unpack_outcome(const Json& json) {
  Outcome outcome;
  for (const Json& answer : json.at("answers")) {
    outcome.classes.push_back(static_cast<eval::AnswerClass>(answer.at("class").get<int>()));
    outcome.questions.push_back(unpack_cost(answer.at("question")));
    outcome.answers.push_back(unpack_cost(answer.at("answer")));
  }
  return outcome;
}

void add_outcome(const eval::PasskeyTrial& trial, const Outcome& outcome, std::size_t arm,
                 std::vector<Row>& rows) {
  auto row = std::find_if(rows.begin(), rows.end(), [&](const Row& candidate) {
    return candidate.variant == trial.variant && candidate.length == trial.length &&
           candidate.depth == trial.depth && candidate.arm == arm;
  });
  if (row == rows.end()) {
    Row fresh;
    fresh.variant = trial.variant;
    fresh.length = trial.length;
    fresh.depth = trial.depth;
    fresh.arm = arm;
    row = rows.insert(rows.end(), fresh);
  }
  const eval::AnswerClass full = outcome.classes.front();
  const eval::AnswerClass mine = outcome.classes[arm + 1];
  const bool hit = mine == eval::AnswerClass::kHit;
  row->trials += 1;
  row->full_hits += full == eval::AnswerClass::kHit;
  row->full_truncated += full == eval::AnswerClass::kTruncated;
  row->hits += hit;
  row->hits_where_full += hit && full == eval::AnswerClass::kHit;
  row->truncated += mine == eval::AnswerClass::kTruncated;
  const auto place = static_cast<std::size_t>(trial.place);
  row->place_trials[place] += 1;
  row->place_hits[place] += hit;
  row->question += outcome.questions[arm + 1];
  row->answer += outcome.answers[arm + 1];
}

Json row_fields(const Row& row, const eval::Arm& arm) {
  Json json = {{"variant", std::string(name_of(row.variant))},
               {"length", row.length},
               {"depth", row.depth},
               {"arm", arm.method()},
               {"budget", arm.policy.budget},
               {"question_budget", arm.question.budget},
               {"trials", row.trials},
               {"full_hits", row.full_hits},
               {"hits", row.hits},
               {"hits_where_full", row.hits_where_full},
               {"truncated", row.truncated},
               {"full_truncated", row.full_truncated}};
  for (const eval::PagePlace place : kPlaces) {
    const auto i = static_cast<std::size_t>(place);
    if (row.place_trials[i] == 0) continue;
    json["places"][std::string(name_of(place))] = {{"trials", row.place_trials[i]},
                                                   {"hits", row.place_hits[i]}};
  }
  json["question_bytes_share"] = row.question.bytes_share();
  json["answer_bytes_share"] = row.answer.bytes_share();
  json.update(cost_fields(row.cost(), arm));
  return json;
}

std::string as_table(const std::vector<Row>& rows, const std::vector<eval::Arm>& arms) {
  const int width = name_width(arms);
  std::string table = format("%-12s %7s %6s %-*s %9s %7s %6s %6s %11s %4s %9s %9s\n", "variant",
                             "length", "depth", width, "budget", "question", "trials", "full",
                             "hits", "where full", "cut", "question", "answer");
  for (const Row& row : rows) {
    table += format(
        "%-12s %7lld %6.2f %-*s %9lld %7lld %6lld %6lld %7lld/%-3lld %4lld %7.1f %% %7.1f %%\n",
        std::string(name_of(row.variant)).c_str(), static_cast<long long>(row.length), row.depth,
        width, arms[row.arm].name.c_str(), static_cast<long long>(arms[row.arm].question.budget),
        static_cast<long long>(row.trials), static_cast<long long>(row.full_hits),
        static_cast<long long>(row.hits), static_cast<long long>(row.hits_where_full),
        static_cast<long long>(row.full_hits), static_cast<long long>(row.truncated),
        100 * row.question.bytes_share(), 100 * row.answer.bytes_share());
  }
  return table + "The last two columns: KV bytes read of full attention's.\n";
}

/// Text of at least as many tokens as the longest prompt, when there is no file.
std::string haystack_text(const PasskeyOptions& options, std::int64_t longest) {
  if (!options.haystack.empty()) return read_input(options.haystack);
  constexpr std::int64_t kShortestSentence = 8;  // tokens; every word is one at least
  return filler_text(static_cast<std::size_t>(longest / kShortestSentence + 1), options.seed);
}

std::vector<EvalItem> items_of(const PasskeyOptions& options,
                               const std::vector<eval::PasskeyTrial>& trials, Engine& engine,
                               const eval::Haystack& haystack, const std::vector<eval::Arm>& arms) {
  std::vector<EvalItem> items;
  items.reserve(trials.size());
  for (const eval::PasskeyTrial& trial : trials) {
    items.push_back(
        {item_name(trial), trial.length, [&](const Progress& progress) -> std::optional<Json> {
           const auto prompt = eval::passkey_prompt(engine.model().tokenizer(), haystack, trial,
                                                    engine.options().page_size);
           const auto answers = eval::answer(
               engine, eval::passkey_request(prompt, options.max_tokens), arms, progress);
           if (!answers) return std::nullopt;
           return pack(prompt, *answers);
         }});
  }
  return items;
}

/// trials, full_hits, hits and rows. Throws Error for a row that was not sparse.
Json count_fields(const std::vector<Row>& rows, const std::vector<eval::Arm>& arms) {
  std::int64_t trials = 0;
  std::int64_t full_hits = 0;
  std::int64_t hits = 0;
  Json row_list = Json::array();
  for (const Row& row : rows) {
    check_sparse(row.cost(), arms[row.arm], " at length " + std::to_string(row.length));
    trials += row.trials;
    full_hits += row.full_hits;
    hits += row.hits;
    row_list.push_back(row_fields(row, arms[row.arm]));
  }
  return {{"trials", trials}, {"full_hits", full_hits}, {"hits", hits}, {"rows", row_list}};
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
  const EvalSetup setup = checked_setup(options.eval);
  const std::vector<eval::Arm>& arms = setup.arms;
  std::int64_t longest = 0;
  for (const eval::PasskeyTrial& trial : trials) longest = std::max(longest, trial.length);
  Output output(options.eval.common.output);
  const auto model = load_model(options.eval.common);
  check_context(options.eval, longest + options.max_tokens, model->info());
  const std::string text = haystack_text(options, longest);
  const eval::Haystack haystack(model->tokenizer(), text);
  Json identity = run_identity("passkey", setup, model->info());
  identity["haystack"] = eval::fingerprint(text);
  identity["max_tokens"] = options.max_tokens;
  const std::int32_t page_size = setup.engine.page_size;
  for (const eval::PasskeyTrial& trial : trials) {  // too short a length is refused before any work
    eval::passkey_prompt(model->tokenizer(), haystack, trial, page_size);
  }

  Engine engine(model, eval_engine(setup, eval::answer_cache_tokens(
                                              longest, longest, options.max_tokens, page_size)));
  const std::vector<EvalItem> items = items_of(options, trials, engine, haystack, arms);
  const std::vector<Json> results = run_items("Pass key", items, options.eval.resume, identity);
  std::vector<Row> rows;
  std::size_t finished = 0;
  Json answers = Json::array();
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (results[i].is_null()) continue;
    ++finished;
    const Outcome outcome = unpack_outcome(results[i]);
    for (std::size_t arm = 0; arm < arms.size(); ++arm) add_outcome(trials[i], outcome, arm, rows);
    answers.push_back(answer_fields(items[i].name, results[i]));
  }
  Json json = common_fields(model->info(), engine.options().threads);
  json.update(count_fields(rows, arms));
  json["finish"] = finished < items.size() ? "stopped" : "end";
  json["policy"] = shared_policy_fields(engine.options());
  json["answers"] = answers;
  return report(options.eval, output, json, as_table(rows, arms), finished, items.size());
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
  add_eval_options(*command, options->eval);
  add_question_budget(*command, options->eval);
  add_baseline_options(*command, options->eval);
  command->callback([options, &status] { status = eval_passkey(*options); });
}

}  // namespace quest::cli
