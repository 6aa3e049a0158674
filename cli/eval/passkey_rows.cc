// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "eval/passkey_rows.h"

#include <algorithm>

#include "eval/eval_run.h"
#include "quest/eval/statistics.h"

namespace quest::cli {
namespace {

constexpr eval::PagePlace kPlaces[] = {eval::PagePlace::kStart, eval::PagePlace::kMiddle,
                                       eval::PagePlace::kEnd};

bool injects(const eval::Arm& arm) {
  return arm.baseline && arm.baseline->kind == eval::BaselineKind::kInject;
}

/// [lists, hits, first layer or -1], or null.
Json pack_reach(const std::optional<eval::EvidenceReach>& reach) {
  if (!reach) return nullptr;
  return Json::array({reach->lists, reach->hits, reach->first_layer.value_or(-1)});
}

std::optional<eval::EvidenceReach> unpack_reach(const Json& json) {
  if (json.is_null()) return std::nullopt;
  eval::EvidenceReach reach;
  reach.lists = json.at(0).get<std::int64_t>();
  reach.hits = json.at(1).get<std::int64_t>();
  const auto layer = json.at(2).get<std::int32_t>();
  if (layer >= 0) reach.first_layer = layer;
  return reach;
}

Json pack_answer(const eval::PasskeyPrompt& prompt, const eval::ArmAnswer& answer) {
  return {{"class", static_cast<int>(eval::classify(answer, prompt.keys))},
          {"text", answer.text},
          {"question", pack_cost(answer.question)},
          {"answer", pack_cost(answer.answer)},
          {"injected", {answer.injected.pages, answer.injected.bytes}},
          {"reach", pack_reach(answer.reach)}};
}

double injected_share(const PasskeyRow& row) {
  const std::int64_t dense = row.cost().counters.attention.dense_bytes;
  return dense == 0 ? 0 : static_cast<double>(row.injected.bytes) / static_cast<double>(dense);
}

/// Null where nothing was measured.
Json evidence_fields(const PasskeyRow& row) {
  if (row.probed == 0) return nullptr;
  Json json = {{"trials", row.probed}, {"never", row.never()}};
  const bool any = !row.first_layers.empty();
  json["first_layer_mean"] = any ? Json(eval::mean(row.first_layers)) : Json();
  json["first_layer_median"] = any ? Json(eval::median(row.first_layers)) : Json();
  json["lists_share"] =
      ratio_or_null(static_cast<double>(row.probed_hits), static_cast<double>(row.probed_lists));
  return json;
}

Json fields_of(const PasskeyRow& row, const eval::Arm& arm) {
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
  json["evidence"] = evidence_fields(row);
  if (injects(arm)) {
    json["injected"] = {{"layers", {arm.baseline->layers.first, arm.baseline->layers.last}},
                        {"pages", row.injected.pages},
                        {"bytes", row.injected.bytes},
                        {"bytes_share", injected_share(row)}};
  }
  json["question_bytes_share"] = row.question.bytes_share();
  json["answer_bytes_share"] = row.answer.bytes_share();
  json.update(cost_fields(row.cost(), arm));
  return json;
}

/// The evidence columns: median of the first layer, trials without, share of the lists.
std::string evidence_columns(const PasskeyRow& row) {
  if (row.probed == 0) return format(" %9s %7s %7s", "-", "-", "-");
  const std::string layer =
      row.first_layers.empty() ? std::string("-") : format("%g", eval::median(row.first_layers));
  return format(" %9s %3lld/%-3lld %5.1f %%", layer.c_str(), static_cast<long long>(row.never()),
                static_cast<long long>(row.probed),
                100 * static_cast<double>(row.probed_hits) / static_cast<double>(row.probed_lists));
}

}  // namespace

Json pack_answers(const eval::PasskeyPrompt& prompt, const eval::Answers& answers) {
  Json json = {{"keys", prompt.keys},
               {"tokens", prompt.material.size() + prompt.question.size()},
               {"answers", Json::array({pack_answer(prompt, answers.full)})}};
  for (const eval::ArmAnswer& answer : answers.arms) {
    json["answers"].push_back(pack_answer(prompt, answer));
  }
  return json;
}

std::vector<PasskeyOutcome> unpack_outcomes(const Json& json) {
  std::vector<PasskeyOutcome> outcomes;
  for (const Json& answer : json.at("answers")) {
    PasskeyOutcome outcome;
    outcome.answer_class = static_cast<eval::AnswerClass>(answer.at("class").get<int>());
    outcome.question = unpack_cost(answer.at("question"));
    outcome.answer = unpack_cost(answer.at("answer"));
    outcome.injected.pages = answer.at("injected").at(0).get<std::int64_t>();
    outcome.injected.bytes = answer.at("injected").at(1).get<std::int64_t>();
    outcome.reach = unpack_reach(answer.at("reach"));
    outcomes.push_back(outcome);
  }
  return outcomes;
}

eval::ArmCost PasskeyRow::cost() const {
  eval::ArmCost sum = question;
  sum += answer;
  return sum;
}

std::int64_t PasskeyRow::never() const {
  return probed - static_cast<std::int64_t>(first_layers.size());
}

void add_outcome(const eval::PasskeyTrial& trial, const std::vector<PasskeyOutcome>& outcomes,
                 std::size_t arm, std::vector<PasskeyRow>& rows) {
  auto row = std::find_if(rows.begin(), rows.end(), [&](const PasskeyRow& candidate) {
    return candidate.variant == trial.variant && candidate.length == trial.length &&
           candidate.depth == trial.depth && candidate.arm == arm;
  });
  if (row == rows.end()) {
    PasskeyRow fresh;
    fresh.variant = trial.variant;
    fresh.length = trial.length;
    fresh.depth = trial.depth;
    fresh.arm = arm;
    row = rows.insert(rows.end(), fresh);
  }
  const eval::AnswerClass full = outcomes.front().answer_class;
  const PasskeyOutcome& mine = outcomes[arm + 1];
  const bool hit = mine.answer_class == eval::AnswerClass::kHit;
  row->trials += 1;
  row->full_hits += full == eval::AnswerClass::kHit;
  row->full_truncated += full == eval::AnswerClass::kTruncated;
  row->hits += hit;
  row->hits_where_full += hit && full == eval::AnswerClass::kHit;
  row->truncated += mine.answer_class == eval::AnswerClass::kTruncated;
  const auto place = static_cast<std::size_t>(trial.place);
  row->place_trials[place] += 1;
  row->place_hits[place] += hit;
  row->question += mine.question;
  row->answer += mine.answer;
  row->injected += mine.injected;
  if (!mine.reach || mine.reach->lists == 0) return;
  row->probed += 1;
  row->probed_lists += mine.reach->lists;
  row->probed_hits += mine.reach->hits;
  if (mine.reach->first_layer) row->first_layers.push_back(double(*mine.reach->first_layer));
}

Json row_fields(const std::vector<PasskeyRow>& rows, const std::vector<eval::Arm>& arms) {
  std::int64_t trials = 0;
  std::int64_t full_hits = 0;
  std::int64_t hits = 0;
  Json row_list = Json::array();
  for (const PasskeyRow& row : rows) {
    check_sparse(row.cost(), arms[row.arm], " at length " + std::to_string(row.length));
    trials += row.trials;
    full_hits += row.full_hits;
    hits += row.hits;
    row_list.push_back(fields_of(row, arms[row.arm]));
  }
  return {{"trials", trials}, {"full_hits", full_hits}, {"hits", hits}, {"rows", row_list}};
}

std::string row_table(const std::vector<PasskeyRow>& rows, const std::vector<eval::Arm>& arms) {
  const int width = name_width(arms);
  const bool injected = std::any_of(arms.begin(), arms.end(), injects);
  std::string table = format("%-12s %7s %6s %-*s %9s %7s %6s %6s %11s %4s %9s %9s", "variant",
                             "length", "depth", width, "budget", "question", "trials", "full",
                             "hits", "where full", "cut", "question", "answer");
  if (injected) table += format(" %9s", "injected");
  table += format(" %9s %7s %7s\n", "first hit", "never", "lists");
  for (const PasskeyRow& row : rows) {
    const eval::Arm& arm = arms[row.arm];
    table += format(
        "%-12s %7lld %6.2f %-*s %9lld %7lld %6lld %6lld %7lld/%-3lld %4lld %7.1f %% %7.1f %%",
        std::string(name_of(row.variant)).c_str(), static_cast<long long>(row.length), row.depth,
        width, arm.name.c_str(), static_cast<long long>(arm.question.budget),
        static_cast<long long>(row.trials), static_cast<long long>(row.full_hits),
        static_cast<long long>(row.hits), static_cast<long long>(row.hits_where_full),
        static_cast<long long>(row.full_hits), static_cast<long long>(row.truncated),
        100 * row.question.bytes_share(), 100 * row.answer.bytes_share());
    if (injects(arm)) {
      table += format(" %7.1f %%", 100 * injected_share(row));
    } else if (injected) {
      table += format(" %9s", "-");
    }
    table += evidence_columns(row) + "\n";
  }
  table += "question, answer: KV bytes read of full attention's";
  table += injected ? "; injected: the part of them that was forced.\n" : ".\n";
  return table +
         "first hit: median of the first layer whose page lists hold the key when the question "
         "ends; never: trials without;\nlists: share of the lists that hold it.\n";
}

}  // namespace quest::cli
