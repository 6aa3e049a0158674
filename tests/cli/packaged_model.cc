// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "packaged_model.h"

#include "cli/filler_text.h"
#include "cli/program.h"

namespace quest::testing {

const std::string& packaged_model() {
  static const std::string path = [] {
    const ProgramResult result = run_program({"inspect", "--json"});
    if (result.status != 0) return std::string();
    return parse_object(result.out).at("model").get<std::string>();
  }();
  return path;
}

std::string pass_key_text(const std::string& key, double depth, std::size_t sentences) {
  constexpr std::size_t kParagraph = 6;  // sentences; the key stands between paragraphs
  const auto before =
      static_cast<std::size_t>(depth * static_cast<double>(sentences)) / kParagraph * kParagraph;
  return cli::filler_text(before, 3) + "The pass key is " + key + ". Remember it. " + key +
         " is the pass key.\n\n" + cli::filler_text(sentences - before, 4);
}

nlohmann::json parse_object(const std::string& text) {
  nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object()) {
    ADD_FAILURE() << "not one JSON object: " << text;
    return nlohmann::json::object();
  }
  return json;
}

}  // namespace quest::testing
