// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
// quest bench: fields, bytes against the cost model, reports, models of random weights. Nothing
// here is decided by how long something took.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <string>
#include <vector>

#include "cli/packaged_model.h"
#include "cli/program.h"

namespace quest::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

// A shape of its own, so that no model is needed, and a buffer that is quickly read.
const std::vector<std::string> kSmallShape = {"--q-heads",   "4",  "--kv-heads", "2",
                                              "--head-dim",  "64", "--repeat",   "1",
                                              "--probe-mib", "16", "-t",         "2"};

std::vector<std::string> bench(const std::string& kind, std::vector<std::string> more) {
  std::vector<std::string> arguments = {"bench", kind};
  arguments.insert(arguments.end(), kSmallShape.begin(), kSmallShape.end());
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

Json run_json(std::vector<std::string> arguments) {
  arguments.emplace_back("--json");
  const ProgramResult result = run_program(arguments);
  EXPECT_EQ(result.status, 0) << result.err;
  return parse_object(result.out);
}

void expect_common_fields(const Json& json) {
  for (const char* name : {"version", "commit", "compiler", "cpu", "threads", "model", "ggml"}) {
    EXPECT_TRUE(json.contains(name)) << name;
  }
  EXPECT_EQ(json.at("threads"), 2);
  EXPECT_GT(json.at("read_bandwidth"), 0);
}

// SPEC S8 for one layer: whole pages of K and V, and the summaries of all pages where some were
// scored.
double expected_bytes(const Json& row, int element_bytes) {
  const int page_size = row.at("page_size");
  const int pages = (row.at("context").get<int>() + page_size - 1) / page_size;
  const int head_dim = row.at("head_dim");
  const double page = 2.0 * head_dim * page_size * element_bytes;
  // 8-bit minimum and maximum, and an f16 scale for every 32 channels.
  const double q8 = 2.0 * head_dim + 2.0 * ((head_dim + 31) / 32);
  const double summary = row.at("summary") == "q8" ? q8 : page / page_size;
  const double heads = row.at("kv_heads").get<int>() * row.at("batch").get<int>();
  if (row.at("budget").is_null()) return heads * pages * page;
  const int selected = row.at("budget").get<int>() / page_size;
  return heads * (selected * page + pages * summary);
}

void expect_sound_row(const Json& row, int element_bytes) {
  EXPECT_DOUBLE_EQ(row.at("bytes"), expected_bytes(row, element_bytes)) << row;
  EXPECT_GT(row.at("bandwidth_share"), 0) << row;
  EXPECT_LE(row.at("bandwidth_share"), 1.5) << row;
  EXPECT_LE(row.at("seconds_min"), row.at("seconds")) << row;
  EXPECT_LE(row.at("seconds"), row.at("seconds_max")) << row;
  EXPECT_EQ(row.contains("stages"), row.at("engine") != "llama.cpp") << row;
  EXPECT_EQ(row.contains("flash_attention"), row.at("engine") == "llama.cpp") << row;
}

TEST(BenchAttention, BytesAreThoseOfTheCostModel) {
  // 1,000 tokens: neither whole pages nor a multiple of llama.cpp's padding.
  const auto json = run_json(bench("attention", {"--context", "640,1000", "--budget", "64,128"}));
  expect_common_fields(json);
  const auto& rows = json.at("rows");
  ASSERT_EQ(rows.size(), 10U);
  const std::vector<std::string> engines = {"quest", "quest", "dense", "llama.cpp", "llama.cpp"};
  for (std::size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(rows[i].at("engine"), engines[i % 5]);
    EXPECT_EQ(rows[i].at("context"), i < 5 ? 640 : 1000);
    expect_sound_row(rows[i], 2);
  }
  EXPECT_EQ(rows[3].at("flash_attention"), true);
  EXPECT_EQ(rows[4].at("flash_attention"), false);
  ASSERT_EQ(json.at("ratios").size(), 4U);
  for (const auto& ratio : json.at("ratios")) {
    EXPECT_GT(ratio.at("speedup_over_dense"), 0);
    EXPECT_GT(ratio.at("speedup_over_llama_cpp"), 0);
    EXPECT_GT(ratio.at("dense_bandwidth_share"), 0);
  }
}

TEST(BenchAttention, DenseAgreesWithLlamaCppForEveryKvTypeAndBatch) {
  for (const char* kv : {"f32", "f16", "bf16"}) {
    const auto json = run_json(bench("attention", {"--context", "600", "--budget", "64", "--kv", kv,
                                                   "--batch", "3", "--page-size", "32"}));
    ASSERT_EQ(json.at("rows").size(), 4U);
    for (const auto& row : json.at("rows")) {
      EXPECT_EQ(row.at("kv"), kv);
      EXPECT_EQ(row.at("batch"), 3);
      expect_sound_row(row, std::string(kv) == "f32" ? 4 : 2);
    }
    EXPECT_LT(json.at("rows")[2].at("max_relative_difference"), 0.1) << kv;
    EXPECT_LT(json.at("rows")[3].at("max_relative_difference"), 0.02) << kv;
  }
}

TEST(BenchAttention, RefusesToCallDenseReadingSparse) {
  const ProgramResult result =
      run_program(bench("attention", {"--context", "640", "--budget", "64", "--dense-layers", "99",
                                      "--peer", "none"}));
  EXPECT_EQ(result.status, 1);
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err, HasSubstr("nothing was left out"));
}

TEST(BenchSweep, HasItsFourParts) {
  const auto json =
      run_json(bench("sweep", {"--context", "256,1024", "--budget", "128", "--page-sizes", "8,64",
                               "--pages", "2,16", "--batch", "1,3", "--batch-context", "512"}));
  expect_common_fields(json);
  ASSERT_EQ(json.at("rows").size(), 4U);
  for (const auto& row : json.at("rows")) expect_sound_row(row, 2);
  // 16 pages of 64 tokens cover the 1,024: that cell of the grid is left out.
  ASSERT_EQ(json.at("grid").size(), 5U);
  for (const auto& row : json.at("grid")) {
    expect_sound_row(row, 2);
    EXPECT_EQ(row.at("context"), 1024);
    if (row.at("budget").is_null()) continue;
    EXPECT_EQ(row.at("budget").get<int>(),
              row.at("pages").get<int>() * row.at("page_size").get<int>());
  }
  ASSERT_EQ(json.at("batches").size(), 4U);
  EXPECT_EQ(json.at("batches")[0].at("batch"), 1);
  EXPECT_EQ(json.at("batches")[2].at("batch"), 3);
  EXPECT_EQ(json.at("batches")[2].at("bytes").get<double>(),
            3 * json.at("batches")[0].at("bytes").get<double>());
  ASSERT_EQ(json.at("crossovers").size(), 1U);
  const auto& crossover = json.at("crossovers")[0];
  EXPECT_EQ(json.at("crossover_tokens"), crossover.at("crossover_tokens"));
  if (!crossover.at("crossover_tokens").is_null()) {
    EXPECT_GT(crossover.at("crossover_tokens"), 128);
    EXPECT_LE(crossover.at("crossover_tokens"), 1024);
  }
}

void expect_self_contained(const std::string& html) {
  EXPECT_THAT(html, HasSubstr("<svg"));
  EXPECT_THAT(html, HasSubstr("<table"));
  EXPECT_THAT(html, HasSubstr("prefers-color-scheme:dark"));
  EXPECT_THAT(html, HasSubstr("<dt>commit</dt>"));
  for (const char* reference : {"http", "src=", "href=", "url(", "@import", "<script"}) {
    EXPECT_THAT(html, Not(HasSubstr(reference)));
  }
}

TEST(BenchReport, HtmlIsSelfContained) {
  const TemporaryFolder folder;
  const std::string html = folder / "report.html";
  const std::vector<std::vector<std::string>> commands = {
      bench("attention", {"--context", "300,600", "--budget", "64", "--html", html}),
      bench("sweep", {"--context", "600", "--budget", "64", "--page-sizes", "16", "--pages", "2",
                      "--batch", "1", "--batch-context", "300", "--html", html})};
  for (const auto& command : commands) {
    const ProgramResult result = run_program(command);
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_THAT(result.out, HasSubstr("Read bandwidth"));
    expect_self_contained(read_file(html));
    std::filesystem::remove(html);
  }
}

TEST(BenchReport, PathThatCannotBeWrittenIsRefusedFirst) {
  for (const char* kind : {"attention", "sweep"}) {
    const ProgramResult result =
        run_program(bench(kind, {"--html", "/nonexistent/report.html", "--context", "9000"}));
    EXPECT_EQ(result.status, 1);
    EXPECT_EQ(result.out, "");
    EXPECT_THAT(result.err, HasSubstr("/nonexistent/report.html"));
    EXPECT_THAT(result.err, HasSubstr("--html"));
  }
}

TEST(BenchReport, InterruptLeavesNoFile) {
  const TemporaryFolder folder;
  ProgramSetup setup;
  setup.while_running = [](pid_t pid, const auto&) {
    if (wait_until_caught(pid, SIGINT)) ::kill(pid, SIGINT);
  };
  std::string contexts = "2000";
  for (int i = 1; i < 1000; ++i) contexts += ",2000";
  const ProgramResult result = run_program(
      bench("attention", {"--context", contexts, "--peer", "none", "--budget", "64", "--html",
                          folder / "report.html", "-o", folder / "table.txt"}),
      setup);
  EXPECT_EQ(result.status, 130) << result.err;
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

using BenchModel = PackagedModelTest;

TEST_F(BenchModel, DecodeWritesReportAndChart) {
  const TemporaryFolder folder;
  const std::string html = folder / "decode.html";
  const std::string svg = folder / "decode.svg";
  const auto json =
      run_json({"bench", "decode", "--context", "200,320", "--budget", "64", "--repeat", "1",
                "--tokens", "2", "-t", "2", "--probe-mib", "16", "--html", html, "--svg", svg});
  expect_common_fields(json);
  expect_self_contained(read_file(html));
  EXPECT_THAT(read_file(svg), HasSubstr("xmlns="));
  EXPECT_THAT(read_file(svg), HasSubstr("llama.cpp (plain)"));
  const double weights = json.at("weight_bytes_per_step");
  EXPECT_NEAR(weights, static_cast<double>(std::filesystem::file_size(packaged_model())),
              0.05 * weights);
  for (const auto& row : json.at("rows")) {
    if (row.at("engine") == "llama.cpp") continue;
    const double bytes = weights + row.at("kv_bytes_read_per_token").get<double>();
    const double share = bytes * row.at("decode_tokens_per_second").get<double>() /
                         json.at("read_bandwidth").get<double>();
    EXPECT_NEAR(row.at("bandwidth_share"), share, 1e-9);
    EXPECT_GT(share, 0);
  }
  EXPECT_EQ(json.at("ratios").size(), 2U);
}

TEST_F(BenchModel, ShapeComesFromTheModelUnlessGiven) {
  const auto json =
      run_json({"bench", "attention", "--context", "300", "--budget", "64", "--repeat", "1",
                "--probe-mib", "16", "--peer", "none", "-t", "2", "--head-dim", "128"});
  EXPECT_EQ(json.at("q_heads"), 9);
  EXPECT_EQ(json.at("kv_heads"), 3);
  EXPECT_EQ(json.at("head_dim"), 128);
  EXPECT_EQ(json.at("model"), packaged_model());
}

TEST_F(BenchModel, MadeModelRunsHereAndInLlamaCpp) {
  const TemporaryFolder folder;
  const std::string path = folder / "made.gguf";
  const auto made = run_json({"bench", "--make-model", "smollm2-135m", "--out", path, "--type",
                              "q8_0", "--context", "1024"});
  EXPECT_EQ(made.at("model"), path);
  EXPECT_EQ(made.at("vocabulary"), 49152);
  EXPECT_EQ(made.at("file_bytes"), std::filesystem::file_size(path));
  const auto shape = run_json({"inspect", path});
  EXPECT_EQ(shape.at("layers"), 30);
  EXPECT_EQ(shape.at("embedding"), 576);
  EXPECT_EQ(shape.at("trained_context"), 1024);
  EXPECT_EQ(shape.at("parameters"), made.at("parameters"));
  EXPECT_THAT(shape.at("name").get<std::string>(), HasSubstr("random weights"));
  const auto run = run_json({"run", "-m", path, "-p", "Once upon a time", "-n", "2"});
  EXPECT_EQ(run.at("generated_tokens"), 2);
  const auto decode = run_json({"bench", "decode", "-m", path, "--context", "200", "--budget", "64",
                                "--repeat", "1", "--tokens", "2", "--probe-mib", "16"});
  EXPECT_EQ(decode.at("rows").size(), 4U);
  const auto plain =
      run_json({"bench", "decode", "-m", path, "--context", "200", "--budget", "64", "--repeat",
                "1", "--tokens", "2", "--probe-mib", "16", "--peer", "llama.cpp-plain"});
  EXPECT_EQ(plain.at("rows").size(), 3U);
  EXPECT_EQ(plain.at("rows").at(2).at("flash_attention"), false);

  const ProgramResult again = run_program({"bench", "--make-model", "smollm2-135m", "--out", path});
  EXPECT_EQ(again.status, 1);
  EXPECT_THAT(again.err, HasSubstr("not overwritten"));
  const auto entries = std::filesystem::directory_iterator(folder.path());
  EXPECT_EQ(std::distance(begin(entries), end(entries)), 1);
}

TEST_F(BenchModel, SmallerVocabularyIsPadded) {
  const TemporaryFolder folder;
  const std::string path = folder / "made.gguf";
  const auto made = run_json({"bench", "--make-model", "qwen2.5-0.5b", "--out", path});
  EXPECT_EQ(made.at("vocabulary"), 151936);
  EXPECT_THAT(made.at("name").get<std::string>(), HasSubstr("padded from 49152 to 151936"));
  const auto run = run_json({"run", "-m", path, "-p", "Once upon a time", "-n", "2"});
  EXPECT_EQ(run.at("generated_tokens"), 2);
}

TEST_F(BenchModel, InterruptedModelLeavesNoFile) {
  const TemporaryFolder folder;
  ProgramSetup setup;
  setup.while_running = [](pid_t pid, const auto&) {
    if (wait_until_caught(pid, SIGINT)) ::kill(pid, SIGINT);
  };
  const ProgramResult result = run_program(
      {"bench", "--make-model", "llama-3.2-1b", "--out", folder / "made.gguf", "--type", "f16"},
      setup);
  EXPECT_EQ(result.status, 130) << result.err;
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

void expect_usage_error(const std::vector<std::string>& arguments,
                        const std::vector<std::string>& messages) {
  const ProgramResult result = run_program(arguments);
  EXPECT_EQ(result.status, 2) << result.err;
  EXPECT_EQ(result.out, "");
  for (const std::string& message : messages) EXPECT_THAT(result.err, HasSubstr(message));
}

TEST(BenchUsage, FlagsAreNamed) {
  expect_usage_error({"bench"}, {"--make-model"});
  expect_usage_error({"bench", "--make-model", "gpt-5", "--out", "x"},
                     {"--make-model", "gpt-5", "llama-3.2-1b", "smollm2-360m"});
  expect_usage_error({"bench", "--make-model", "smollm2-135m"}, {"--out"});
  expect_usage_error({"bench", "--make-model", "smollm2-135m", "--out", "x", "--type", "q3"},
                     {"--type", "q3"});
  expect_usage_error({"bench", "--out", "x"}, {"--make-model"});
  expect_usage_error({"bench", "--make-model", "smollm2-135m", "--out", "x", "sweep"},
                     {"--make-model"});
  expect_usage_error(bench("attention", {"--context", "1k"}), {"--context", "1k"});
  expect_usage_error(bench("attention", {"--context", "512", "--budget", "512"}),
                     {"--context 512", "--budget"});
  expect_usage_error(bench("attention", {"--budget", "8"}), {"--budget 8"});
  expect_usage_error(bench("attention", {"--batch", "0"}), {"--batch 0"});
  expect_usage_error(bench("attention", {"--peer", "nobody"}), {"--peer", "nobody"});
  expect_usage_error(bench("attention", {"--kv", "f8"}), {"--kv", "f8"});
  expect_usage_error(
      {"bench", "attention", "--q-heads", "5", "--kv-heads", "2", "--head-dim", "64"},
      {"--q-heads 5", "--kv-heads 2"});
  expect_usage_error(
      {"bench", "attention", "--q-heads", "4", "--kv-heads", "2", "--head-dim", "72"},
      {"--head-dim 72"});
  expect_usage_error(bench("sweep", {"--page-sizes", "12"}), {"--page-sizes 12"});
  expect_usage_error(bench("sweep", {"--context", "512", "--budget", "2048"}),
                     {"--context 512", "2048"});
  expect_usage_error(bench("sweep", {"--batch", "many"}), {"--batch", "many"});
  expect_usage_error(
      bench("attention", {"--context", "999", "--budget", "64", "--html", "x", "-o", "x"}),
      {"--html", "-o"});
}

}  // namespace
}  // namespace quest::testing
