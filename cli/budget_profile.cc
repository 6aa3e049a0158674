// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "budget_profile.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string_view>
#include <utility>

#include "input.h"
#include "quest/error.h"
#include "quest/eval/fingerprint.h"
#include "quest_profiles.h"

namespace quest::cli {
namespace {

using Json = nlohmann::json;

constexpr std::uintmax_t kLargestFile = 16 << 20;
constexpr std::int64_t kLargestBudget = std::int64_t{1} << 40;

class Reader {
 public:
  Reader(const Json& json, std::string source) : json_(json), source_(std::move(source)) {}

  [[noreturn]] void refuse(const std::string& what) const {
    std::ostringstream text;
    text << "profile '" << source_ << "': " << what;
    throw InvalidArgument(text.str());
  }
  [[noreturn]] void refuse(const char* name, const std::string& what) const {
    std::ostringstream text;
    text << '\'' << name << "' " << what;
    refuse(text.str());
  }
  const Json& field(const Json& in, const char* name) const {
    if (!in.is_object() || !in.contains(name)) refuse(name, "is missing");
    return in.at(name);
  }
  std::string text(const Json& in, const char* name) const {
    const Json& value = field(in, name);
    if (!value.is_string()) refuse(name, "is not a text");
    return value.get<std::string>();
  }
  std::int64_t integer(const Json& value, const char* name, std::int64_t least,
                       std::int64_t most) const {
    if (!value.is_number_integer() || value.get<double>() < static_cast<double>(least) ||
        value.get<double>() > static_cast<double>(most)) {
      refuse(name,
             "is not a whole number from " + std::to_string(least) + " to " + std::to_string(most));
    }
    return value.get<std::int64_t>();
  }

  BudgetProfile read() const {
    const std::int64_t format = integer(field(json_, "quest_profile"), "quest_profile", 0, 1 << 20);
    if (format != kProfileFormat) {
      refuse("format " + std::to_string(format) + ", this program reads " +
             std::to_string(kProfileFormat) + "; calibrate again");
    }
    BudgetProfile profile;
    profile.source = source_;
    profile.model = text(json_, "model_fingerprint");
    const Json& policy = field(json_, "policy");
    const auto gqa = parse_group_mode(text(policy, "gqa"));
    if (!gqa) refuse("gqa", "is unknown");
    profile.policy.group_mode = *gqa;
    profile.policy.sinks =
        static_cast<std::int32_t>(integer(field(policy, "sinks"), "sinks", 0, 1 << 30));
    profile.policy.window =
        static_cast<std::int32_t>(integer(field(policy, "window"), "window", 0, 1 << 30));
    const Json& beta = field(policy, "beta");
    if (!beta.is_number() || !(beta.get<double>() >= 0 && beta.get<double>() <= 1)) {
      refuse("beta", "is not a number from 0 to 1");
    }
    profile.policy.beta = beta.get<float>();
    if (policy.contains("value_threshold")) {
      const Json& share = field(policy, "value_threshold");
      if (!share.is_number() || !(share.get<double>() >= 0 && share.get<double>() <= 1)) {
        refuse("value_threshold", "is not a number from 0 to 1");
      }
      profile.policy.value_threshold = share.get<float>();
    }
    const auto summary = parse_summary_type(text(policy, "summary"));
    if (!summary) refuse("summary", "is unknown");
    profile.summary_type = *summary;
    profile.page_size =
        static_cast<std::int32_t>(integer(field(policy, "page_size"), "page_size", 8, 64));
    if ((profile.page_size & (profile.page_size - 1)) != 0) {
      refuse("page_size", "is not 8, 16, 32 or 64");
    }
    profile.policy.dense_layers = 0;
    read_tables(profile.policy.calibrated, profile.page_size);
    profile.policy = profile.policy.with_budget(
        integer(field(json_, "budget"), "budget", profile.page_size, kLargestBudget),
        profile.page_size);
    return profile;
  }

 private:
  void read_tables(std::vector<BudgetTable>& tables, std::int32_t page_size) const {
    const Json& list = field(json_, "tables");
    if (!list.is_array() || list.empty()) refuse("tables", "is not a list of budget tables");
    for (const Json& entry : list) {
      BudgetTable table;
      table.budget = integer(field(entry, "budget"), "budget", page_size, kLargestBudget);
      if (!tables.empty() && table.budget <= tables.back().budget) {
        refuse("tables", "is not in ascending order of 'budget'");
      }
      read_budgets(field(entry, "budgets"), page_size, table.tokens);
      if (!tables.empty() && table.tokens.size() != tables.back().tokens.size()) {
        refuse("tables", "has tables of different sizes");
      }
      tables.push_back(std::move(table));
    }
  }

  void read_budgets(const Json& layers, std::int32_t page_size,
                    std::vector<std::int64_t>& budgets) const {
    if (!layers.is_array() || layers.empty()) refuse("budgets", "is not a list of layers");
    for (const Json& layer : layers) {
      if (!layer.is_array() || layer.empty() || layer.size() != layers.front().size()) {
        refuse("budgets", "has a layer that is not a list of as many KV heads as the first");
      }
      for (const Json& entry : layer) {
        const bool dense = entry == SelectionPolicy::kDenseBudget;
        budgets.push_back(dense ? SelectionPolicy::kDenseBudget
                                : integer(entry, "budgets", page_size, kLargestBudget));
      }
    }
  }

  const Json& json_;
  const std::string source_;
};

BudgetProfile parse(const std::string& text, const std::string& source) {
  const Json json = Json::parse(text, nullptr, false);
  if (json.is_discarded()) throw InvalidArgument("profile '" + source + "' is not JSON");
  return Reader(json, source).read();
}

}  // namespace

BudgetProfile read_profile(const std::string& path) {
  std::error_code error;
  const std::uintmax_t size = std::filesystem::file_size(path, error);
  if (!error && size > kLargestFile) {
    throw InvalidArgument("profile '" + path + "' has " + std::to_string(size) +
                          " bytes; that is no profile");
  }
  return parse(read_input(path), path);
}

void check_model(const BudgetProfile& profile, const std::string& model_path) {
  const std::string fingerprint = eval::file_fingerprint(model_path);
  if (fingerprint == profile.model) return;
  throw InvalidArgument(
      "profile '" + profile.source + "' was made for the model with fingerprint " + profile.model +
      ", '" + model_path + "' has " + fingerprint + "; run quest calibrate for this model");
}

std::optional<BudgetProfile> packaged_profile(const std::string& model_path) {
  std::string fingerprint;
  for (const std::string_view text : kPackagedProfiles) {
    if (fingerprint.empty()) fingerprint = eval::file_fingerprint(model_path);
    BudgetProfile profile = parse(std::string(text), "packaged");
    if (profile.model == fingerprint) return profile;
  }
  return std::nullopt;
}

}  // namespace quest::cli
