// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
// The evaluations on the packaged model, kept small; metrics and arms have tests of their own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "cli/filler_text.h"
#include "cli/packaged_model.h"
#include "cli/program.h"

namespace quest::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(EvalUsage, BadOptionsAreNamed) {
  expect_refusal({"eval"}, 2, {"subcommand is required"});
  expect_refusal({"eval", "ppl"}, 2, {"--text"});
  expect_refusal({"eval", "ppl", "--text", "x", "--budget", "512,"}, 2, {"--budget '512,'"});
  expect_refusal({"eval", "ppl", "--text", "x", "--budget", "8", "--page-size", "16"}, 2,
                 {"--budget 8", "16"});
  expect_refusal({"eval", "ppl", "--text", "x", "--tokens", "0"}, 2, {"--tokens 0"});
  expect_refusal({"eval", "passkey", "--variant", "plain,funny"}, 2, {"--variant 'funny'"});
  expect_refusal({"eval", "passkey", "--place", "left"}, 2, {"--place 'left'", "start"});
  expect_refusal({"eval", "passkey", "--depth", "0.5,1.5"}, 2, {"--depth '0.5,1.5'"});
  for (const std::string word : {"x", "5", "5-2", "-3", "2-", "0-1-2", "0x1-2"}) {
    expect_refusal({"eval", "passkey", "--inject", "all," + word}, 2,
                   {"--inject '" + word + "'", "all", "FROM-TO", "0-9"});
  }
  expect_refusal({"eval", "fidelity", "--text", "x", "--budget", "64,128"}, 2, {"one budget"});
  expect_refusal({"eval", "ppl", "--text", "x", "--baselines", "h2o,snapkv"}, 2,
                 {"--baselines 'snapkv'", "streaming-llm", "h2o", "tova", "oracle", "fixed",
                  "random", "gather", "all"});
  expect_refusal({"eval", "longbench"}, 2, {"FILE"});
  expect_refusal({"eval", "longbench", "--convert", "x"}, 2, {"--prompts"});
}

TEST(EvalUsage, DenseIsNoSparseArm) {
  expect_refusal({"eval", "ppl", "--text", "x", "--dense"}, 1, {"--dense", "sparse arm"});
  expect_refusal({"eval", "passkey", "--dense"}, 1, {"--dense"});
}

TEST(EvalUsage, DamagedSamplesAreNamedByLineAndField) {
  const TemporaryFolder folder;
  const std::string path = folder / "samples.jsonl";
  const std::string good =
      R"({"id":"1","dataset":"d","metric":"qa_f1","context":"c","query":"q","answers":["a"]})";
  write_file(path, good + "\n{\"id\":\"2\"}\n");
  expect_refusal({"eval", "longbench", path}, 1, {path, "line 2", "'dataset'"});
  write_file(path, good + "\nnot json\n");
  expect_refusal({"eval", "longbench", path}, 1, {path, "line 2", "JSON"});
  write_file(path, "\n\n");
  expect_refusal({"eval", "longbench", path}, 1, {path, "no sample"});
  write_file(path, good);
  expect_refusal({"eval", "longbench", path, "--datasets", "other"}, 2, {"other"});
}

TEST(EvalUsage, LongBenchFilesConvert) {
  const TemporaryFolder folder;
  const std::string in = folder / "hotpotqa.jsonl";
  const std::string prompts = folder / "prompts.json";
  const std::string out = folder / "out.jsonl";
  write_file(in, R"({"_id":"x7","dataset":"hotpotqa","input":"Who?","context":"Text.",)"
                 R"("answers":["He"],"length":1,"language":"en","all_classes":null})"
                 "\n");
  write_file(prompts, R"({"hotpotqa":"Read this.\n{context}\nAnswer: {input}\n"})");
  const ProgramResult result =
      run_program({"eval", "longbench", "--convert", in, "--prompts", prompts, "-o", out});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(parse_object(read_file(out)), nlohmann::json({{"id", "x7"},
                                                          {"dataset", "hotpotqa"},
                                                          {"metric", "qa_f1"},
                                                          {"context", "Read this.\nText."},
                                                          {"query", "\nAnswer: Who?\n"},
                                                          {"answers", {"He"}},
                                                          {"max_tokens", 32}}));
  write_file(prompts, "{}");
  expect_refusal({"eval", "longbench", "--convert", in, "--prompts", prompts}, 1, {"hotpotqa"});
}

class Eval : public PackagedModelTest {
 protected:
  void SetUp() override {
    PackagedModelTest::SetUp();
    write_file(folder_ / "text.txt", cli::filler_text(80, 5));  // about 1,100 tokens
  }

  std::string text() const { return folder_ / "text.txt"; }
  std::vector<std::string> ppl(std::vector<std::string> more) const {
    std::vector<std::string> arguments = {"eval",      "ppl", "--text",   text(),
                                          "--context", "600", "--tokens", "24"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }

  TemporaryFolder folder_;
};

TEST_F(Eval, PplReportsWhatWasReadAndWhatItCost) {
  const ProgramResult result =
      run_program(ppl({"--budget", "128,256", "--windows", "2", "--positions", "3", "--json"}));
  ASSERT_EQ(result.status, 0) << result.err;
  const auto json = parse_object(result.out);
  for (const char* field : {"version",
                            "commit",
                            "compiler",
                            "cpu",
                            "threads",
                            "model",
                            "perplexity_full",
                            "perplexity",
                            "relative_increase",
                            "interval",
                            "kl",
                            "agreement",
                            "kv_bytes_share",
                            "tokens",
                            "bytes_read",
                            "seconds",
                            "pages_read",
                            "sparse_lists",
                            "dense_lists",
                            "fallback_lists",
                            "tokens_per_second",
                            "tokens_per_second_full",
                            "policy",
                            "positions"}) {
    EXPECT_TRUE(json.contains(field)) << field;
  }
  EXPECT_EQ(json.at("tokens"), 48);
  ASSERT_EQ(json.at("rows").size(), 2U);
  const auto& small = json.at("rows").at(0);
  const auto& large = json.at("rows").at(1);
  EXPECT_EQ(small.at("budget"), 128);
  EXPECT_EQ(small.at("perplexity"), json.at("perplexity"));
  EXPECT_EQ(small.at("fallback_lists"), 0);
  EXPECT_LT(small.at("kv_bytes_share"), large.at("kv_bytes_share"));
  EXPECT_LT(large.at("kv_bytes_share"), 1);
  EXPECT_GT(small.at("kl"), large.at("kl"));
  EXPECT_EQ(small.at("positions").size(), 3U);
  EXPECT_LE(small.at("interval").at(0), small.at("interval").at(1));
  EXPECT_NEAR(small.at("perplexity").get<double>() / small.at("perplexity_full").get<double>() - 1,
              small.at("relative_increase").get<double>(), 1e-9);
}

TEST_F(Eval, PplSetsBaselinesBesideEveryBudget) {
  const std::vector<std::string> options = {"--budget", "128,256",           "--baselines",
                                            "all",      "--value-threshold", "0"};
  const ProgramResult table = run_program(ppl(options));
  ASSERT_EQ(table.status, 0) << table.err;
  const std::string json_file = folder_ / "rows.json";
  std::vector<std::string> as_json = options;
  as_json.insert(as_json.end(), {"--json", "-o", json_file});
  ASSERT_EQ(run_program(ppl(as_json)).status, 0);
  const auto rows = parse_object(read_file(json_file)).at("rows");
  const std::vector<std::string> methods = {"quest",  "streaming-llm", "h2o",    "tova",
                                            "oracle", "fixed",         "random", "gather"};
  ASSERT_EQ(rows.size(), 2 * methods.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto& row = rows.at(i);
    const auto& quest = rows.at(i / methods.size() * methods.size());
    const std::string& method = methods[i % methods.size()];
    EXPECT_EQ(row.at("arm"), method);
    EXPECT_EQ(row.at("budget"), i < methods.size() ? 128 : 256);
    const double share = row.at("kv_bytes_share_without_summaries");
    const double same = quest.at("kv_bytes_share_without_summaries");
    if (method != "gather") {
      EXPECT_NEAR(share, same, 1e-9) << method;
    } else {
      EXPECT_GT(share, 2 * same);
      EXPECT_NEAR(row.at("perplexity").get<double>(), quest.at("perplexity").get<double>(), 0.05);
    }
    if (method != "quest") {
      EXPECT_THAT(table.out, HasSubstr(" " + method));
    }
  }
  EXPECT_GT(rows.at(0).at("kv_bytes_share").get<double>(),
            rows.at(0).at("kv_bytes_share_without_summaries").get<double>());
}

TEST_F(Eval, CertifiedArmReportsWhatTheProofTook) {
  const std::string resume = folder_ / "items.jsonl";
  const auto arguments = ppl({"--budget", "32,64", "--certify", "mass=0.2", "--dense-layers", "2",
                              "--windows", "2", "--resume", resume, "--json"});
  const ProgramResult result = run_program(arguments);
  ASSERT_EQ(result.status, 0) << result.err;
  const auto json = parse_object(result.out);
  EXPECT_EQ(json.at("policy").at("certify"), "mass=0.2");
  EXPECT_EQ(json.at("policy").at("beta"), 1);
  EXPECT_EQ(json.at("policy").at("gqa"), "per-head");
  EXPECT_EQ(json.at("policy").at("calibrated"), false) << "no packaged profile unless named";
  ASSERT_EQ(json.at("rows").size(), 2U);
  for (const auto& row : json.at("rows")) {
    const auto& certificate = row.at("certificate");
    EXPECT_EQ(certificate.at("kind"), "mass");
    EXPECT_EQ(certificate.at("requested"), 0.2);
    EXPECT_EQ(certificate.at("rows"), 48 * 28 * 3) << "tokens, sparse layers, KV heads";
    EXPECT_GE(certificate.at("fallback_share"), 0);
    EXPECT_LE(certificate.at("fallback_share"), 1);
    EXPECT_GT(certificate.at("pages_mean"), 2);
    EXPECT_LE(certificate.at("pages_mean"), certificate.at("pages_max"));
    EXPECT_LE(certificate.at("pages_p95"), certificate.at("pages_max"));
    EXPECT_LE(certificate.at("pages_max"), 39);
    EXPECT_LE(certificate.at("epsilon_max"), 0.2);
    EXPECT_GT(row.at("bytes_read").at("probes"), 0);
    // Little mass is missing, so the outputs are close.
    EXPECT_LT(row.at("kl").get<double>(), 0.1);
  }
  // From the resume file alone.
  const auto again = parse_object(run_program(arguments).out);
  EXPECT_EQ(again.at("rows").at(0).at("certificate"), json.at("rows").at(0).at("certificate"));
  EXPECT_EQ(again.at("rows").at(1).at("bytes_read"), json.at("rows").at(1).at("bytes_read"));
}

TEST_F(Eval, CertifiedArmMayReadEverything) {
  const ProgramResult result = run_program(ppl({"--budget", "32", "--certify", "top-r=9999"}));
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("100.0 % of the rows read everything"));
}

TEST_F(Eval, ArmThatReadsLikeDenseFails) {
  const ProgramResult result = run_program(ppl({"--budget", "4096"}));
  EXPECT_EQ(result.status, 1);
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err, HasSubstr("nothing was sparse"));
}

TEST_F(Eval, TextsAndContextsThatDoNotFitAreRefused) {
  expect_refusal({"eval", "ppl", "--text", text(), "--context", "3000"}, 2, {"text.txt", "tokens"});
  expect_refusal({"eval", "ppl", "--text", text(), "--context", "9000"}, 2, {"--long-context"});
}

TEST_F(Eval, ResumedRunGivesTheSameFiguresAndOtherRunsAreRefused) {
  const std::string resume = folder_ / "items.jsonl";
  const auto arguments = ppl({"--budget", "128", "--windows", "2", "--resume", resume, "--json"});
  const ProgramResult first = run_program(arguments);
  ASSERT_EQ(first.status, 0) << first.err;
  // As a crash leaves it: the second item cut off in the middle.
  const std::string lines = read_file(resume);
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 3);
  write_file(resume, lines.substr(0, lines.size() - 30));
  const ProgramResult second = run_program(arguments);
  ASSERT_EQ(second.status, 0) << second.err;
  const auto a = parse_object(first.out);
  const auto b = parse_object(second.out);
  for (const char* field : {"perplexity_full", "perplexity", "kl", "interval", "pages_read"}) {
    EXPECT_EQ(a.at(field), b.at(field)) << field;
  }
  const std::string kept = read_file(resume);
  EXPECT_EQ(std::count(kept.begin(), kept.end(), '\n'), 3);
  expect_refusal(ppl({"--budget", "256", "--windows", "2", "--resume", resume}), 1,
                 {resume, "another run", "arms"});
  EXPECT_EQ(read_file(resume), kept);
  expect_refusal(ppl({"--resume", text()}), 1, {"text.txt", "--resume"});
}

TEST_F(Eval, CtrlCKeepsFinishedItems) {
  const std::string resume = folder_ / "items.jsonl";
  const auto arguments = ppl({"--budget", "128", "--windows", "12", "--resume", resume, "--json"});
  ProgramSetup setup;
  setup.while_running = [&](pid_t pid, const std::filesystem::path&) {
    // The first line tells the run, the second is a finished item.
    while (is_running(pid)) {
      const std::string lines = std::filesystem::exists(resume) ? read_file(resume) : std::string();
      if (std::count(lines.begin(), lines.end(), '\n') >= 2) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    ::kill(pid, SIGINT);
  };
  const ProgramResult result = run_program(arguments, setup);
  EXPECT_EQ(result.status, 130) << result.err;
  const auto json = parse_object(result.out);
  EXPECT_EQ(json.at("finish"), "stopped");
  EXPECT_GE(json.at("windows"), 1);
  EXPECT_LT(json.at("windows"), 12);
  EXPECT_THAT(result.err, HasSubstr("of 12 items"));
}

TEST_F(Eval, PasskeyCountsTrialsByRow) {
  const ProgramResult result = run_program(
      {"eval", "passkey", "--length", "700", "--depth", "0.5", "--place", "middle", "--variant",
       "plain,evidence", "--budget", "128,256", "--question-budget", "256", "--json"});
  ASSERT_EQ(result.status, 0) << result.err;
  const auto json = parse_object(result.out);
  EXPECT_EQ(json.at("trials"), 4);  // two prompts, two budgets
  ASSERT_EQ(json.at("rows").size(), 4U);
  std::int64_t hits = 0;
  for (const auto& row : json.at("rows")) {
    EXPECT_EQ(row.at("trials"), 1);
    EXPECT_EQ(row.at("question_budget"), 256);
    EXPECT_EQ(row.at("length"), 700);
    EXPECT_LE(row.at("hits_where_full"), std::min(row.at("hits"), row.at("full_hits")));
    EXPECT_LT(row.at("kv_bytes_share"), 1);
    EXPECT_GT(row.at("sparse_lists"), 0);
    EXPECT_EQ(row.at("places").at("middle").at("trials"), 1);
    hits += row.at("hits").get<std::int64_t>();
  }
  EXPECT_EQ(json.at("hits"), hits);
  EXPECT_EQ(json.at("rows").at(0).at("variant"), "plain");
  EXPECT_EQ(json.at("rows").at(0).at("full_hits"), 1) << result.out;
}

TEST_F(Eval, PasskeyInjectsTheEvidenceAndFindsTheFirstLayerThatHitsIt) {
  expect_refusal({"eval", "passkey", "--inject", "0-99"}, 2,
                 {"--inject 0-99", "30 layers", "0-29", "all"});
  const std::string resume = folder_ / "items.jsonl";
  std::vector<std::string> arguments = {
      "eval",     "passkey", "--length",  "700",     "--depth",           "0.5",
      "--place",  "end",     "--variant", "plain",   "--profile",         "none",
      "--budget", "128",     "--inject",  "all,2-9", "--question-budget", "128",
      "--resume", resume};
  const ProgramResult table = run_program(arguments);
  ASSERT_EQ(table.status, 0) << table.err;
  EXPECT_THAT(table.out, HasSubstr("128 inject 0-29"));
  EXPECT_THAT(table.out, HasSubstr("128 inject 2-9"));
  EXPECT_THAT(table.out, HasSubstr("first hit"));
  arguments.push_back("--json");
  const ProgramResult result = run_program(arguments);  // from the resume file
  ASSERT_EQ(result.status, 0) << result.err;
  const auto rows = parse_object(result.out).at("rows");
  ASSERT_EQ(rows.size(), 3U);
  const auto& plain = rows.at(0);
  EXPECT_EQ(plain.at("arm"), "quest");
  EXPECT_FALSE(plain.contains("injected"));
  for (const std::size_t i : {1U, 2U}) {
    const auto& row = rows.at(i);
    EXPECT_EQ(row.at("arm"), "inject");
    const auto& injected = row.at("injected");
    EXPECT_GT(injected.at("pages"), 0);
    // Two bytes for each of 64 channels of 16 tokens, keys and values.
    EXPECT_EQ(injected.at("bytes"), injected.at("pages").get<std::int64_t>() * 2 * 16 * 64 * 2);
    EXPECT_GT(injected.at("bytes_share"), 0);
    EXPECT_GT(row.at("question_bytes_share"), plain.at("question_bytes_share"));
  }
  EXPECT_EQ(rows.at(1).at("injected").at("layers"), nlohmann::json({0, 29}));
  EXPECT_EQ(rows.at(2).at("injected").at("layers"), nlohmann::json({2, 9}));
  const auto& all = rows.at(1).at("evidence");
  EXPECT_EQ(all.at("trials"), 1);
  EXPECT_EQ(all.at("never"), 0);
  EXPECT_EQ(all.at("first_layer_mean"), 2);  // the two before are dense
  EXPECT_EQ(all.at("first_layer_median"), 2);
  EXPECT_EQ(all.at("lists_share"), 1);
  EXPECT_LT(plain.at("evidence").at("lists_share"), 1);
  EXPECT_GE(rows.at(2).at("evidence").at("lists_share").get<double>(), 8.0 / 28);
}

TEST_F(Eval, LongBenchScoresAndCountsTruncation) {
  const std::string samples = folder_ / "samples.jsonl";
  nlohmann::json sample = {{"id", "1"},
                           {"dataset", "mine"},
                           {"metric", "qa_f1"},
                           {"context", pass_key_text("48213", 0.5, 60)},
                           {"query", std::string("\n\n") + kPassKeyQuestion},
                           {"answers", {"48213", "none"}},
                           {"max_tokens", 8}};
  std::string lines = sample.dump() + "\n";
  sample["id"] = "2";
  sample["context"] = cli::filler_text(100, 9);
  sample["metric"] = "rouge_l";
  write_file(samples, lines + sample.dump() + "\n");
  expect_refusal({"eval", "longbench", samples, "-c", "1000"}, 2, {"'2'", "--truncate", "1000"});
  const ProgramResult result = run_program(
      {"eval", "longbench", samples, "-c", "1000", "--truncate", "--budget", "256", "--json"});
  ASSERT_EQ(result.status, 0) << result.err;
  const auto json = parse_object(result.out);
  ASSERT_EQ(json.at("rows").size(), 2U);
  const auto& f1 = json.at("rows").at(0);
  EXPECT_EQ(f1.at("dataset"), "mine");
  EXPECT_EQ(f1.at("metric"), "qa_f1");
  EXPECT_EQ(f1.at("samples"), 1);
  EXPECT_EQ(f1.at("truncated"), 0);
  EXPECT_GT(f1.at("full"), 0) << result.out;
  const auto& rouge = json.at("rows").at(1);
  EXPECT_EQ(rouge.at("metric"), "rouge_l");
  EXPECT_EQ(rouge.at("truncated"), 1);
  EXPECT_LE(rouge.at("prompt_tokens"), 992);
  EXPECT_GT(json.at("answers").at(1).at("left_out"), 0);
}

TEST_F(Eval, FidelityWritesASelfContainedReport) {
  const std::string html = folder_ / "report.html";
  const ProgramResult result =
      run_program({"eval", "fidelity", "--text", text(), "--context", "600", "--tokens", "3",
                   "--budget", "128", "--profile", "none", "--html", html, "--json"});
  ASSERT_EQ(result.status, 0) << result.err;
  const auto json = parse_object(result.out);
  for (const char* mode : {"teacher_forced", "free_running"}) {
    const auto& run = json.at(mode);
    EXPECT_EQ(run.at("tokens"), 3);
    EXPECT_GT(run.at("mass"), 0.3);
    EXPECT_LT(run.at("mass"), 1);
    EXPECT_GT(run.at("cosine"), 0.5);
    EXPECT_LT(run.at("kv_bytes_share"), 1);
    ASSERT_EQ(run.at("layers").size(), 30U);
    EXPECT_EQ(run.at("layers").at(0).at("sparse"), false);
    EXPECT_NEAR(run.at("layers").at(0).at("mass").at(0), 1, 1e-9);
    EXPECT_LT(run.at("layers").at(0).at("relative_l2").at(0), 1e-2);
    EXPECT_EQ(run.at("layers").at(5).at("sparse"), true);
    EXPECT_EQ(run.at("layers").at(5).at("page_recall").size(), 9U);
    EXPECT_GT(run.at("layers").at(5).at("jaccard"), 0);
  }
  EXPECT_EQ(json.at("free_running").at("same_tokens").size(), 1U);
  const std::string page = read_file(html);
  EXPECT_THAT(page, HasSubstr("<svg"));
  EXPECT_THAT(page, HasSubstr("Free-running"));
  EXPECT_THAT(page, Not(HasSubstr("http")));
  EXPECT_THAT(page, Not(HasSubstr("<script")));
}

}  // namespace
}  // namespace quest::testing
