// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
// Calibration and the profiles that it writes, on the packaged model.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "cli/filler_text.h"
#include "cli/packaged_model.h"
#include "cli/program.h"

namespace quest::testing {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

/// A profile of 30 layers with 3 KV heads, whatever it is for.
Json profile_of(const std::string& fingerprint) {
  const auto table = [](int budget, std::vector<int> heads) -> Json {
    return {{"budget", budget}, {"budgets", std::vector<std::vector<int>>(30, heads)}};
  };
  return {{"quest_profile", 2},
          {"model_fingerprint", fingerprint},
          {"policy",
           {{"gqa", "group-max"},
            {"sinks", 16},
            {"window", 64},
            {"beta", 0.5},
            {"page_size", 8},
            {"summary", "plain"}}},
          {"budget", 128},
          {"tables", {table(128, {96, 96, 192}), table(256, {96, -1, 384})}}};
}

TEST(CalibrateUsage, BadOptionsAreNamed) {
  expect_refusal({"calibrate", "-o", "x.json"}, 2, {"--text"});
  expect_refusal({"calibrate", "--text", "x"}, 2, {"-o FILE"});
  for (const char* target : {"0", "-1%", "%", "much", "1%%", "nan"}) {
    expect_refusal({"calibrate", "--text", "x", "-o", "x.json", "--max-ppl-increase", target}, 2,
                   {"--max-ppl-increase '" + std::string(target)});
  }
  for (const char* mass : {"0", "1", "-0.5", "nan"}) {
    expect_refusal({"calibrate", "--text", "x", "-o", "x.json", "--mass", mass}, 2,
                   {"--mass", "between 0 and 1"});
  }
  expect_refusal(
      {"calibrate", "--text", "x", "-o", "x.json", "--mass", "0.9", "--max-ppl-increase", "1%"}, 2,
      {"--mass, --max-ppl-increase and --budget", "give one"});
  expect_refusal({"calibrate", "--text", "x", "-o", "x.json", "--mass", "0.9", "--budget", "128"},
                 2, {"--mass, --max-ppl-increase and --budget", "give one"});
  expect_refusal({"calibrate", "--text", "x", "-o", "x.json", "--dense-layers", "2"}, 2,
                 {"--dense-layers"});
}

TEST(CalibrateUsage, DamagedProfilesAreNamedByFileAndField) {
  const TemporaryFolder folder;
  const std::string path = folder / "profile.json";
  const auto refused = [&](const std::string& text, const std::string& message) {
    write_file(path, text);
    expect_refusal({"run", "-p", "x", "--profile", path}, 2, {path, message});
  };
  refused("{", "not JSON");
  refused("[]", "'quest_profile' is missing");
  const auto without = [](const char* field) {
    Json json = profile_of("0");
    json.erase(field);
    return json.dump();
  };
  for (const char* field : {"quest_profile", "model_fingerprint", "policy", "budget", "tables"}) {
    refused(without(field), std::string(field) + "' is missing");
  }
  const auto with = [](const char* field, const Json& value) {
    Json json = profile_of("0");
    json[field] = value;
    return json.dump();
  };
  refused(with("quest_profile", 1), "calibrate again");
  refused(with("budget", 0), "'budget' is not a whole number");
  refused(with("budget", 1e300), "'budget' is not a whole number");
  refused(with("tables", Json::array()), "'tables' is not a list");
  const auto with_policy = [](const char* field, const Json& value) {
    Json json = profile_of("0");
    json["policy"][field] = value;
    return json.dump();
  };
  refused(with_policy("page_size", 12), "'page_size' is not 8, 16, 32 or 64");
  refused(with_policy("page_size", 128), "'page_size' is not a whole number from 8 to 64");
  refused(with_policy("summary", "q5"), "'summary' is unknown");
  refused(with_policy("beta", 2), "'beta' is not a number from 0 to 1");
  refused(with_policy("value_threshold", 2), "'value_threshold' is not a number from 0 to 1");
  refused(with_policy("value_threshold", "0.1"), "'value_threshold' is not a number from 0 to 1");
  const auto with_budgets = [](const Json& budgets) {
    Json json = profile_of("0");
    json["tables"][1]["budgets"] = budgets;
    return json.dump();
  };
  refused(with_budgets({{96, 96}, {96}}), "as many KV heads");
  refused(with_budgets({{96, -2}}), "'budgets' is not a whole number");
  refused(with_budgets({{96, 7}}), "'budgets' is not a whole number");  // below a page
  refused(with_budgets(Json::array()), "'budgets' is not a list");
  refused(with_budgets({{96, 96, 192}}), "tables of different sizes");
  Json backwards = profile_of("0");
  backwards["tables"][1]["budget"] = 128;
  refused(backwards.dump(), "ascending order");
  expect_refusal({"run", "-p", "x", "--profile", path + ".missing"}, 1, {"missing"});
}

class Calibrate : public PackagedModelTest {
 protected:
  void SetUp() override {
    PackagedModelTest::SetUp();
    write_file(folder_ / "text.txt", cli::filler_text(120, 5));  // about 1,600 tokens
  }
  std::string text() const { return folder_ / "text.txt"; }
  std::string profile() const { return folder_ / "profile.json"; }
  std::vector<std::string> calibrate(std::vector<std::string> more) const {
    std::vector<std::string> arguments = {
        "calibrate", "--text",  text(), "--context", "400", "--tokens", "4",      "--windows",
        "1",         "--sinks", "16",   "--window",  "64",  "-o",       profile()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }

  TemporaryFolder folder_;
};

TEST_F(Calibrate, ProfileServesItsModel) {
  const ProgramResult made = run_program(calibrate({"--max-ppl-increase", "900%"}));
  ASSERT_EQ(made.status, 0) << made.err;
  EXPECT_THAT(made.out, HasSubstr("chosen"));
  const Json json = Json::parse(read_file(profile()));
  EXPECT_EQ(json.at("quest_profile"), 2);
  const Json& table = json.at("tables").at(0);
  EXPECT_EQ(json.at("budget"), table.at("budget"));  // 900 % allow the smallest
  ASSERT_EQ(table.at("budgets").size(), 30U);
  EXPECT_EQ(json.at("policy").at("dense_layers"), 0);  // as it was measured
  EXPECT_EQ(json.at("policy").at("crossover"), 1);
  const std::vector<int> levels = json.at("curves").at("levels");
  EXPECT_EQ(levels, (std::vector<int>{96, 192}));
  int sum = 0;
  for (const Json& layer : table.at("budgets")) {
    ASSERT_EQ(layer.size(), 3U);
    for (const int budget : layer) {
      EXPECT_TRUE(budget >= 96 && budget <= 192 && budget % 16 == 0) << budget;
      sum += budget;
    }
  }
  EXPECT_NEAR(json.at("budget").get<double>(), sum / 90.0, 0.5);
  EXPECT_LE(json.at("check").at("relative_increase").get<double>(), 9);

  const std::vector<std::string> ppl = {"eval",     "ppl", "--text",   text(), "--context", "600",
                                        "--tokens", "8",   "--budget", "128",  "--json"};
  const auto policy = [&](std::vector<std::string> more) {
    std::vector<std::string> arguments = ppl;
    arguments.insert(arguments.end(), more.begin(), more.end());
    const ProgramResult result = run_program(arguments);
    EXPECT_EQ(result.status, 0) << result.err;
    return parse_object(result.out).at("policy");
  };
  EXPECT_EQ(policy({"--profile", profile()}).at("calibrated"), true);
  EXPECT_EQ(policy({"--profile", "none"}).at("calibrated"), false);

  // A profile decides how pages are stored and ranked; what the user names wins.
  write_file(profile(), profile_of(json.at("model_fingerprint")).dump());
  Json named = policy({"--profile", profile()});
  EXPECT_EQ(named.at("page_size"), 8);
  EXPECT_EQ(named.at("summary"), "plain");
  EXPECT_EQ(named.at("gqa"), "group-max");
  named =
      policy({"--profile", profile(), "--page-size", "16", "--summary", "q8", "--gqa", "quota"});
  EXPECT_EQ(named.at("page_size"), 16);
  EXPECT_EQ(named.at("summary"), "q8");
  EXPECT_EQ(named.at("gqa"), "quota");
}

TEST_F(Calibrate, MassIsATargetToo) {
  const ProgramResult made = run_program(
      calibrate({"--mass", "0.9", "--gqa", "group-max", "--beta", "0.5", "--page-size", "32"}));
  ASSERT_EQ(made.status, 0) << made.err;
  const Json json = Json::parse(read_file(profile()));
  EXPECT_EQ(json.at("mass"), 0.9);
  EXPECT_GE(json.at("checked_mass"), 0.9);
  EXPECT_EQ(json.at("policy").at("page_size"), 32);
  EXPECT_FALSE(json.contains("max_ppl_increase"));
  const Json& curves = json.at("curves").at("missed_mass");
  const std::vector<int> levels = json.at("curves").at("levels");
  for (const Json& table : json.at("tables")) {
    if (table.at("budget") != json.at("budget")) continue;
    for (std::size_t layer = 0; layer < curves.size(); ++layer) {
      for (std::size_t head = 0; head < curves[layer].size(); ++head) {
        const int budget = table.at("budgets").at(layer).at(head);
        const auto at = std::find(levels.begin(), levels.end(), budget) - levels.begin();
        if (budget == -1) continue;  // reads everything
        EXPECT_LE(curves[layer][head].at(static_cast<std::size_t>(at)).get<double>(), 0.1001);
      }
    }
  }
  EXPECT_EQ(run_program({"eval", "ppl", "--text", text(), "--context", "900", "--tokens", "4",
                         "--profile", profile()})
                .status,
            0);
}

TEST_F(Calibrate, CurvesOfAProfileAreDividedAnew) {
  const ProgramResult made = run_program(
      calibrate({"--gqa", "group-max", "--beta", "0.5", "--page-size", "32", "--budget", "160"}));
  ASSERT_EQ(made.status, 0) << made.err;
  const Json before = Json::parse(read_file(profile()));
  const std::string again = folder_ / "again.json";
  const std::vector<std::string> divide = {
      "calibrate", "--text", text(),     "--context", "420", "--tokens", "4",
      "--windows", "1",      "--curves", profile(),   "-o",  again};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), divide.begin(), divide.end());
    return more;
  };
  const ProgramResult divided = run_program(with({"--budget", "160"}));
  ASSERT_EQ(divided.status, 0) << divided.err;
  const Json after = Json::parse(read_file(again));
  for (const char* name : {"curves", "ranking", "texts", "context", "policy", "budget"}) {
    EXPECT_EQ(after.at(name), before.at(name)) << name;
  }
  EXPECT_EQ(after.at("checked_on").at("context"), 420);
  ASSERT_EQ(after.at("tables").size(), before.at("tables").size());
  for (std::size_t i = 0; i < after.at("tables").size(); ++i) {
    EXPECT_EQ(after["tables"][i].at("budgets"), before["tables"][i].at("budgets"));
  }

  expect_refusal(with({"--mass", "0.9"}), 2, {"--curves"});
  expect_refusal(with({"--beta", "0.5"}), 2, {"--curves"});
  const auto refused = [&](const Json& json, const std::string& what) {
    write_file(profile(), json.dump());
    expect_refusal(with({"--budget", "160"}), 2, {profile(), what});
  };
  Json bad = before;
  bad["curves"]["kl"][3][1].erase(0);
  refused(bad, "'kl'");
  bad = before;
  bad["curves"]["kl"][3][1][0] = "much";
  refused(bad, "'kl'");
  bad = before;
  bad["curves"]["kl"].erase(0);
  refused(bad, "'kl'");
  bad = before;
  bad["curves"]["levels"] = {128, 128};
  refused(bad, "'levels'");
  bad = before;
  bad.erase("curves");
  refused(bad, "no curves");
}

TEST_F(Calibrate, ProfileOfAnotherModelIsRefused) {
  write_file(profile(), profile_of("0123456789abcdef").dump());
  expect_refusal({"run", "-p", "x", "--profile", profile()}, 2,
                 {"0123456789abcdef", "quest calibrate"});
}

}  // namespace
}  // namespace quest::testing
