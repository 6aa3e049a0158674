// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
// The report of quest-gpu-check from made-up rows: what needs no GPU.
#include "gpu_check/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "gpu_check/made_up_rows.h"
#include "gpu_check/peers.h"
#include "gpu_check/targets.h"

namespace quest::testing {
namespace {

using cli::Json;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pair;

Json made_up_result() {
  return {
      {"version", "0.1"},
      {"commit", "abc"},
      {"gpu", "NVIDIA <Made-Up>"},
      {"correctness",
       {{"cases", 48},
        {"failed", 0},
        {"max_error", 2e-6},
        {"tolerance", 1e-4},
        {"rows", Json::array()}}},
      {"sanitizer",
       {{"failed", 0}, {"runs", Json::array({{{"tool", "memcheck"}, {"result", "passed"}}})}}},
      {"graph", {{"replays", 100}, {"failed", 0}, {"max_error", 0.0}}},
      {"repeats", {{"repeats", 12500}, {"compared", 249}, {"failed", 0}}},
      {"targets", gpu_check::judge_targets(our_rows())},
      {"tables", {{"copy_bandwidth", 3.2e12}, {"rows", our_rows()}, {"skipped", Json::array()}}}};
}

const cli::Table* table_of(const cli::Report& report, const std::string& title) {
  for (const cli::Table& table : report.tables) {
    if (table.title == title) return &table;
  }
  return nullptr;
}

TEST(GpuReport, RowsBecomeATableInTheirOrder) {
  const cli::Report report = gpu_check::make_report(made_up_result());
  const cli::Table* times = table_of(report, "Times");
  ASSERT_NE(times, nullptr);
  ASSERT_EQ(times->rows.size(), 5U);
  for (const auto& row : times->rows) EXPECT_EQ(row.size(), times->headers.size());
  EXPECT_THAT(times->rows[0], ElementsAre("dense", "32/8", "1", "2048", "-", "100.0", "1.00x", "-",
                                          "-", "5.5", "4.000", "40.0", "25.0", "-", "75.0"));
  EXPECT_THAT(times->rows[4],
              ElementsAre("quest", "32/8", "1", "32768", "512", "20.0", "20.00x", "3.5", "4.5",
                          "5.5", "4.000", "200.0", "25.0", "50.0", "75.0"));
  // Targets, times and compute-sanitizer: nothing failed, nothing was skipped, no peers.
  EXPECT_EQ(report.tables.size(), 3U);
  EXPECT_THAT(report.notes, Contains(HasSubstr("compute-sanitizer: 0 of 1 runs failed")));
  // Of the made-up rows none has 32 KV heads.
  EXPECT_THAT(table_of(report, "Targets, at 32 k tokens")->rows[0],
              ElementsAre(HasSubstr("budget 2048"), ">= 7.03", "not measured", "-"));
}

TEST(GpuReport, ChartsHaveALineAnEngineAndBudget) {
  Json result = made_up_result();
  result["tables"]["rows"].push_back(our_row("dense", 2048, 2048, 9e-6, 9e-6, 64));
  const cli::Report report = gpu_check::make_report(result);
  ASSERT_EQ(report.charts.size(), 2U);  // batch 1 and batch 64
  const cli::Chart& chart = report.charts[0];
  EXPECT_THAT(chart.title, HasSubstr("32/8 heads, batch 1"));
  ASSERT_EQ(chart.series.size(), 3U);
  EXPECT_EQ(chart.series[0].name, "dense");
  EXPECT_THAT(chart.series[0].points, ElementsAre(Pair(2048, 100), Pair(32768, 400)));
  EXPECT_EQ(chart.series[1].name, "quest 512");
  EXPECT_THAT(chart.series[1].points, ElementsAre(Pair(2048, 50), Pair(32768, 20)));
  EXPECT_EQ(chart.series[2].name, "quest 2048");
  EXPECT_THAT(report.charts[1].series[0].points, ElementsAre(Pair(2048, 9)));
}

TEST(GpuReport, PeersStandBesideWithRatios) {
  Json result = made_up_result();
  result["peers"] = {
      {"device", "NVIDIA <Made-Up>"},
      {"versions", {{"torch", "2.9"}}},
      {"rows", gpu_check::compare_peers(Json::array({peer_row("torch sdpa", 32768, 600e-6),
                                                     peer_row("torch sdpa", 131072, 2400e-6)}),
                                        our_rows())},
      {"skipped", Json::array({{{"engine", "flashinfer"}, {"reason", "not installed"}}})}};
  const cli::Report report = gpu_check::make_report(result);
  const cli::Table* peers = table_of(report, "Beside other programs' full attention");
  ASSERT_NE(peers, nullptr);
  ASSERT_EQ(peers->rows.size(), 3U);
  for (const auto& row : peers->rows) EXPECT_EQ(row.size(), peers->headers.size());
  EXPECT_THAT(peers->rows[0], ElementsAre("torch sdpa", "32/8", "1", "32768", "600.0", "400.0",
                                          "1.50x", "512", "20.0", "30.00x"));
  EXPECT_THAT(peers->rows[1], ElementsAre("torch sdpa", "32/8", "1", "32768", "600.0", "400.0",
                                          "1.50x", "2048", "40.0", "15.00x"));
  EXPECT_THAT(peers->rows[2],
              ElementsAre("torch sdpa", "32/8", "1", "131072", "2400.0", "-", "-", "-", "-", "-"));
  const cli::Table* skipped = table_of(report, "Other programs, not measured");
  ASSERT_NE(skipped, nullptr);
  EXPECT_THAT(skipped->rows, ElementsAre(std::vector<std::string>{"flashinfer", "all", "all", "all",
                                                                  "not installed"}));
  EXPECT_EQ(report.facts["torch"], "2.9");
  EXPECT_EQ(report.charts[0].series.back().name, "torch sdpa");
  EXPECT_TRUE(report.charts[0].series.back().dashed);
}

TEST(GpuReport, FailuresAndWhatWasSkippedAreNamed) {
  Json result = made_up_result();
  result["correctness"]["failed"] = 1;
  result["correctness"]["rows"].push_back({{"case", "f16, group 3"}, {"error", 0.5}});
  result["graph"]["failed"] = 7;
  result["repeats"]["failed"] = 3;
  result["sanitizer"] = {{"failed", 0}, {"runs", Json::array()}, {"skipped", "it is not there"}};
  result["tables"]["skipped"].push_back({{"context", 262144},
                                         {"batch", 64},
                                         {"q_heads", 32},
                                         {"kv_heads", 32},
                                         {"reason", "memory"}});
  const cli::Report report = gpu_check::make_report(result);
  EXPECT_THAT(report.notes, Contains(HasSubstr("1 of 48 cases failed")));
  EXPECT_THAT(report.notes, Contains(HasSubstr("7 of 100 differ")));
  EXPECT_THAT(report.notes, Contains(HasSubstr("3 of 249 compared differ, of 12500")));
  EXPECT_THAT(report.notes, Contains(HasSubstr("did not run: it is not there")));
  ASSERT_NE(table_of(report, "Cases that failed"), nullptr);
  EXPECT_THAT(table_of(report, "Cases that failed")->rows[0], ElementsAre("f16, group 3", "0.5"));
  ASSERT_NE(table_of(report, "Not measured"), nullptr);
  EXPECT_THAT(table_of(report, "Not measured")->rows[0],
              ElementsAre("32/32", "64", "262144", "memory"));
}

TEST(GpuReport, HtmlIsSelfContained) {
  const std::string html = cli::as_html(gpu_check::make_report(made_up_result()));
  EXPECT_THAT(html, HasSubstr("<h1>Quest on NVIDIA &lt;Made-Up&gt;</h1>"));
  EXPECT_THAT(html, HasSubstr("<svg"));
  EXPECT_THAT(html, HasSubstr("<dt>commit</dt><dd>abc</dd>"));
  EXPECT_THAT(html, HasSubstr("<dt>copy bandwidth, GB/s</dt><dd>3200.0</dd>"));
  for (const char* reference : {"http", "src=", "href=", "url(", "@import", "<script"}) {
    EXPECT_THAT(html, Not(HasSubstr(reference)));
  }
}

/// No row at all, as on a GPU that is too small for any: still a report.
TEST(GpuReport, NothingMeasuredIsStillAReport) {
  Json result = made_up_result();
  result["tables"]["rows"] = Json::array();
  const cli::Report report = gpu_check::make_report(result);
  EXPECT_TRUE(report.charts.empty());
  EXPECT_THAT(cli::as_html(report), HasSubstr("48 cases"));
}

}  // namespace
}  // namespace quest::testing
