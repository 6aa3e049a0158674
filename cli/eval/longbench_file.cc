// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "eval/longbench_file.h"

#include "input.h"
#include "json_output.h"
#include "quest/error.h"

namespace quest::cli {
namespace {

/// One line of a JSON-lines file, which can say where it stands.
class Record {
 public:
  Record(std::string place, Json json) : place_(std::move(place)), json_(std::move(json)) {
    if (!json_.is_object()) refuse("is no JSON object");
  }

  [[noreturn]] void refuse(const std::string& fault) const {
    throw FileError(place_ + " " + fault);
  }

  std::string text(const char* field) const {
    if (!json_.contains(field) || !json_.at(field).is_string()) {
      refuse("has no text '" + std::string(field) + "'");
    }
    return json_.at(field).get<std::string>();
  }

  std::vector<std::string> texts(const char* field) const {
    std::vector<std::string> values;
    if (json_.contains(field) && json_.at(field).is_array()) {
      for (const Json& value : json_.at(field)) {
        if (!value.is_string())
          refuse("has something else than texts in '" + std::string(field) + "'");
        values.push_back(value.get<std::string>());
      }
    }
    if (values.empty()) refuse("has no list of texts '" + std::string(field) + "'");
    return values;
  }

  std::int64_t count_or_zero(const char* field) const {
    if (!json_.contains(field)) return 0;
    if (!json_.at(field).is_number_integer() || json_.at(field) < 1) {
      refuse("has a '" + std::string(field) + "' that is no whole number of at least 1");
    }
    return json_.at(field).get<std::int64_t>();
  }

 private:
  const std::string place_;
  const Json json_;
};

std::vector<Record> read_records(const std::string& path) {
  const std::string text = read_input(path);
  std::vector<Record> records;
  std::size_t number = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    ++number;
    const std::string line = text.substr(begin, end - begin);
    begin = end + 1;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    records.emplace_back("'" + path + "' line " + std::to_string(number),
                         Json::parse(line, nullptr, false));
  }
  if (records.empty()) throw FileError("'" + path + "' holds no sample");
  return records;
}

/// The template with {input} filled in.
std::string filled(std::string text, const std::string& input) {
  constexpr std::string_view kInput = "{input}";
  const std::size_t place = text.find(kInput);
  if (place != std::string::npos) text.replace(place, kInput.size(), input);
  return text;
}

eval::AnswerMetric metric_of(const Record& record, const std::string& dataset) {
  for (const char* summary : {"gov_report", "qmsum", "multi_news", "samsum"}) {
    if (dataset == summary) return eval::AnswerMetric::kRougeL;
  }
  for (const char* question : {"narrativeqa", "qasper", "multifieldqa_en", "hotpotqa", "2wikimqa",
                               "musique", "triviaqa"}) {
    if (dataset == question) return eval::AnswerMetric::kQaF1;
  }
  record.refuse("belongs to '" + dataset +
                "', which is scored neither by F1 nor by ROUGE-L over English words");
}

}  // namespace

std::vector<eval::LongBenchSample> read_longbench(const std::string& path) {
  std::vector<eval::LongBenchSample> samples;
  for (const Record& record : read_records(path)) {
    eval::LongBenchSample sample;
    sample.id = record.text("id");
    sample.dataset = record.text("dataset");
    const std::string metric = record.text("metric");
    const auto known = eval::parse_answer_metric(metric);
    if (!known) record.refuse("has the unknown metric '" + metric + "'; use qa_f1 or rouge_l");
    sample.metric = *known;
    sample.context = record.text("context");
    sample.query = record.text("query");
    sample.answers = record.texts("answers");
    sample.max_tokens = record.count_or_zero("max_tokens");
    samples.push_back(std::move(sample));
  }
  return samples;
}

std::string convert_longbench(const std::string& path, const std::string& prompts_path) {
  const Json prompts = Json::parse(read_input(prompts_path), nullptr, false);
  if (!prompts.is_object()) {
    throw FileError("'" + prompts_path + "' is no JSON object of data sets and their prompts");
  }
  constexpr std::string_view kContext = "{context}";
  const auto refuse = [&](const char* what, const std::string& dataset) {
    throw FileError("'" + prompts_path + "' has no " + what + " for '" + dataset + "'");
  };
  std::string text;
  for (const Record& record : read_records(path)) {
    const std::string dataset = record.text("dataset");
    if (!prompts.contains(dataset) || !prompts.at(dataset).is_string()) {
      refuse("prompt", dataset);
    }
    const auto prompt = prompts.at(dataset).get<std::string>();
    const std::size_t context = prompt.find(kContext);
    if (context == std::string::npos) {
      refuse("{context} in the prompt", dataset);
    }
    const std::string input = record.text("input");
    const eval::AnswerMetric metric = metric_of(record, dataset);
    const Json sample = {
        {"id", record.text("_id")},
        {"dataset", dataset},
        {"metric", std::string(name_of(metric))},
        {"context", filled(prompt.substr(0, context), input) + record.text("context")},
        {"query", filled(prompt.substr(context + kContext.size()), input)},
        {"answers", record.texts("answers")},
        {"max_tokens", eval::usual_answer_tokens(dataset, metric)}};
    text += sample.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  }
  return text;
}

}  // namespace quest::cli
