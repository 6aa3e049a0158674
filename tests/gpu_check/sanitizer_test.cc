// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
// How quest-gpu-check runs compute-sanitizer, with stand-ins for it.
#include "gpu_check/sanitizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "cli/program.h"

namespace quest::testing {
namespace {

using cli::Json;
using ::testing::HasSubstr;

/// A shell script that stands for compute-sanitizer.
std::string stand_in(const TemporaryFolder& folder, const std::string& body) {
  std::string path = folder / "compute-sanitizer";
  write_file(path, "#!/bin/sh\n" + body + "\n");
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  return path;
}

TEST(GpuSanitizer, EveryToolRunsTheSmallShapes) {
  const TemporaryFolder folder;
  const std::string log = folder / "log";
  const Json result = gpu_check::check_sanitizer(stand_in(folder, "echo \"$*\" >> '" + log + "'"),
                                                 "/some where/it's a check", 2, 10);
  EXPECT_EQ(result["failed"], 0);
  ASSERT_EQ(result["runs"].size(), 3U);
  for (const Json& run : result["runs"]) EXPECT_EQ(run["result"], "passed") << run;
  const std::string calls = read_file(log);
  for (const char* tool : {"memcheck", "racecheck", "synccheck"}) {
    EXPECT_THAT(calls,
                HasSubstr("--tool " + std::string(tool) +
                          " --error-exitcode 99 /some where/it's a check --quick --device 2\n"));
  }
}

TEST(GpuSanitizer, FindingsAndCrashesFailAndAreShown) {
  const TemporaryFolder folder;
  const std::string body =
      "case $2 in memcheck) echo 'Invalid __global__ read'; exit 99;; racecheck) kill -9 $$;; esac";
  const Json result = gpu_check::check_sanitizer(stand_in(folder, body), "check", 0, 10);
  EXPECT_EQ(result["failed"], 2);
  EXPECT_EQ(result["runs"][0]["result"], "failed");
  EXPECT_EQ(result["runs"][0]["output"], "Invalid __global__ read\n");
  EXPECT_EQ(result["runs"][1]["result"], "failed");
  EXPECT_EQ(result["runs"][2]["result"], "passed");
}

TEST(GpuSanitizer, ToolThatDoesNotFinishIsNamedAndNoFailure) {
  const TemporaryFolder folder;
  const Json result = gpu_check::check_sanitizer(stand_in(folder, "exec sleep 30"), "check", 0, 1);
  EXPECT_EQ(result["failed"], 0);
  for (const Json& run : result["runs"]) EXPECT_EQ(run["result"], "unfinished");
}

TEST(GpuSanitizer, NoneIsNamedAsSkipped) {
  const Json result = gpu_check::check_sanitizer("", "check", 0, 10);
  EXPECT_EQ(result["failed"], 0);
  EXPECT_TRUE(result["runs"].empty());
  EXPECT_THAT(result["skipped"].get<std::string>(), HasSubstr("compute-sanitizer is not in"));
}

}  // namespace
}  // namespace quest::testing
