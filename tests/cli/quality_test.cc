// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
// Quality gates: what the packaged profile must keep of full attention on the packaged model, on
// texts that calibration has not seen.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "cli/packaged_model.h"
#include "cli/program.h"

namespace quest::testing {
namespace {

using Json = nlohmann::json;

/// Texts for measurements lie beside the source tree, where they are there at all.
const std::filesystem::path kData = std::filesystem::path(QUEST_SOURCE_DIR) / "../shared/data";

class Quality : public PackagedModelTest {
 protected:
  void SetUp() override {
    PackagedModelTest::SetUp();
    if (IsSkipped()) return;
    if (!std::filesystem::exists(novella())) {
      GTEST_SKIP() << "no text to measure on: " << novella() << " is not there";
    }
  }

  static std::filesystem::path novella() { return kData / "coxon-fund.txt"; }

  /// The context of one LongBench sample, by its line, without the instruction that leads it.
  std::string sample(std::size_t line) const {
    std::ifstream file(kData / "longbench-mini.jsonl");
    std::string text;
    for (std::size_t i = 0; i <= line; ++i) std::getline(file, text);
    const std::string context = Json::parse(text).at("context");
    const std::string path = folder_ / ("sample" + std::to_string(line) + ".txt");
    write_file(path, context.substr(context.find('\n') + 1));
    return path;
  }

 private:
  TemporaryFolder folder_;
};

TEST_F(Quality, PerplexityStaysNearFullAttentionsAtAQuarterOfTheBytes) {
  // A novella, a story, a government report and passages of an encyclopedia.
  std::vector<std::string> arguments = {"eval", "ppl", "--context", "4096", "--tokens", "256"};
  arguments.insert(arguments.end(), {"--windows", "6", "--crossover", "1", "--json"});
  for (const std::string& text : {novella().string(), sample(2), sample(23), sample(16)}) {
    arguments.insert(arguments.end(), {"--text", text});
  }
  const ProgramResult result = run_program(arguments);
  ASSERT_EQ(result.status, 0) << result.err;
  const Json json = parse_object(result.out);
  EXPECT_EQ(json.at("policy").at("calibrated"), true) << "the packaged profile is not the default";
  const Json& row = json.at("rows").at(0);
  EXPECT_EQ(row.at("tokens"), 4 * 6 * 256);
  EXPECT_LE(row.at("kv_bytes_share"), 0.25);
  // Measured 0.0050, with a 95 % interval from 0.0015 to 0.0084, and a KL of 0.0074. Other rounding
  // on the same tokens moves the first by some 0.001, the second by less.
  EXPECT_LE(row.at("relative_increase"), 0.01);
  EXPECT_LE(row.at("kl"), 0.009);
}

TEST_F(Quality, PassKeysAreFoundAsFullAttentionFindsThem) {
  const ProgramResult result = run_program(
      {"eval", "passkey", "--haystack", novella().string(), "--length", "4000", "--depth",
       "0.1,0.5,0.9", "--place", "middle", "--variant", "plain", "--seeds", "1", "--json"});
  ASSERT_EQ(result.status, 0) << result.err;
  const Json json = parse_object(result.out);
  EXPECT_EQ(json.at("policy").at("calibrated"), true);
  EXPECT_EQ(json.at("trials"), 3);
  EXPECT_GE(json.at("full_hits"), 2);
  EXPECT_GE(json.at("hits"), json.at("full_hits"));
}

}  // namespace
}  // namespace quest::testing
