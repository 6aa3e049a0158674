// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
// What the program says to bad input, and its exit status: 2 for usage, 1 for failure.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "cli/packaged_model.h"
#include "cli/program.h"
#include "quest/cuda.h"
#include "quest/error.h"

namespace quest::testing {
namespace {

using ::testing::HasSubstr;

TEST(Usage, MissingOrUnknownCommandIsRefused) {
  expect_refusal({}, 2, {"subcommand is required"});
  expect_refusal({"sing"}, 2, {"quest"});
}

TEST(Usage, UnknownFlagIsNamed) {
  expect_refusal({"run", "-p", "x", "--bugdet", "5"}, 2, {"--bugdet"});
}

TEST(Usage, TextInPlaceOfNumberIsNamed) {
  expect_refusal({"run", "-p", "x", "--budget", "many"}, 2, {"--budget", "many"});
}

TEST(Usage, ProbeBufferOutOfRangeIsRefusedByEveryBenchmark) {
  for (const char* kind : {"attention", "decode", "profile", "sweep"}) {
    expect_refusal({"bench", kind, "--probe-mib", "-1"}, 2, {"--probe-mib -1"});
    expect_refusal({"bench", kind, "--probe-mib", "9000000000000"}, 2, {"--probe-mib", "at most"});
  }
}

TEST(Usage, BudgetBelowOnePageIsRefused) {
  expect_refusal({"run", "-p", "x", "--budget", "0", "--profile", "none"}, 2, {"--budget 0", "16"});
  expect_refusal({"run", "-p", "x", "--budget", "-64"}, 2, {"--budget -64"});
  expect_refusal({"run", "-p", "x", "--budget", "32", "--page-size", "64"}, 2,
                 {"--budget 32", "64"});
}

TEST(Usage, PageSize12IsRefused) {
  expect_refusal({"ask", "doc", "q", "--page-size", "12"}, 2,
                 {"--page-size 12", "8, 16, 32 or 64"});
}

TEST(Usage, KvTypeNamesTheAvailableOnes) {
  expect_refusal({"run", "-p", "x", "--kv", "q4_0"}, 2, {"--kv", "q4_0", "f32, f16, bf16 or q8_0"});
}

TEST(Usage, SummaryTypeNamesTheAvailableOnes) {
  expect_refusal({"run", "-p", "x", "--summary", "q5"}, 2, {"--summary", "q5", "plain, q8 or q4"});
}

TEST(Usage, DeviceThatIsNotThereIsRefusedBeforeAnythingIsRead) {
  expect_refusal({"run", "-p", "x", "--device", "tpu"}, 2, {"--device 'tpu'", "cpu or cuda"});
  try {
    require_cuda();
  } catch (const Error&) {
    // Without GPU support, or without a GPU: which of the two, the program says.
    for (const char* command : {"run", "chat"}) {
      expect_refusal({command, "-m", "no.gguf", "--device", "cuda"}, 1, {"CUDA: "});
    }
  }
}

TEST(Usage, CrossoverBelowOneIsRefused) {
  expect_refusal({"run", "-p", "x", "--crossover", "0.9"}, 2, {"--crossover 0.9", "at least 1"});
}

TEST(Usage, UnknownGroupModeNamesTheKnownOnes) {
  expect_refusal({"run", "-p", "x", "--gqa", "median"}, 2, {"--gqa", "median", "group-mean"});
}

TEST(Usage, BetaOutsideItsRangeIsRefused) {
  expect_refusal({"run", "-p", "x", "--beta", "1.5"}, 2, {"--beta"});
  expect_refusal({"run", "-p", "x", "--beta", "nan"}, 2, {"--beta"});
}

TEST(Usage, ValueThresholdOutsideItsRangeIsRefused) {
  for (const char* bad : {"1.5", "-0.1", "nan"}) {
    expect_refusal({"run", "-p", "x", "--value-threshold", bad}, 2, {"--value-threshold"});
  }
  expect_refusal({"run", "-p", "x", "--certify", "mass=0.1", "--value-threshold", "0.1"}, 2,
                 {"--certify", "--value-threshold"});
}

TEST(Usage, CertificateThatIsNoneIsRefused) {
  for (const char* bad : {"top-r", "top-r=0", "top-r=-3", "top-r=2.5", "mass=0", "mass=1",
                          "mass=5%", "mass=nan", "top=3", ""}) {
    for (const char* command : {"run", "chat"}) {
      std::vector<std::string> arguments = {command, "--certify", bad};
      if (command == std::string("run")) arguments.insert(arguments.end(), {"-p", "x"});
      expect_refusal(arguments, 2, {"--certify", bad, "top-r=N", "mass=EPS"});
    }
  }
}

TEST(Usage, CertificateAndWhatContradictsItAreRefused) {
  const auto refuse = [](std::vector<std::string> more, const std::vector<std::string>& messages) {
    std::vector<std::string> arguments = {"ask", "doc", "q", "--certify", "top-r=1"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    expect_refusal(arguments, 2, messages);
  };
  refuse({"--dense"}, {"--certify", "--dense", "give one"});
  refuse({"--paper"}, {"--certify", "--paper", "give one"});
  refuse({"--beta", "0.5"}, {"--certify", "beta 1", "leave out --beta"});
  refuse({"--gqa", "group-mean"}, {"--certify", "query head", "leave out --gqa"});
  refuse({"--gqa", "median"}, {"--gqa"});
  expect_refusal({"eval", "ppl", "--text", "x", "--certify", "mass=0.1", "--baselines", "h2o"}, 2,
                 {"--certify", "--baselines", "give one"});
  expect_refusal({"eval", "ppl", "--text", "x", "--certify", "mass=2"}, 2, {"--certify 'mass=2'"});
  expect_refusal({"calibrate", "--text", "x", "-o", "y", "--certify", "top-r=1"}, 2, {"--certify"});
}

TEST(Usage, NegativeSinksAndWindowAreRefused) {
  expect_refusal({"run", "-p", "x", "--sinks", "-1"}, 2, {"--sinks -1"});
  expect_refusal({"run", "-p", "x", "--window", "-1"}, 2, {"--window -1"});
}

TEST(Usage, NoTokensToWriteIsRefused) {
  expect_refusal({"run", "-p", "x", "-n", "0"}, 2, {"-n 0"});
  expect_refusal({"ask", "doc", "q", "-n", "-3"}, 2, {"-n -3"});
}

TEST(Usage, EmptyPromptIsRefused) {
  expect_refusal({"run", "-p", ""}, 2, {"prompt is empty"});
  expect_refusal({"ask", "doc", ""}, 2, {"prompt is empty"});
  expect_refusal({"run", "-f", "/dev/null"}, 2, {"/dev/null", "empty"});
  expect_refusal({"ask", "/dev/null", "Why?"}, 2, {"/dev/null", "empty"});
}

TEST(Usage, PromptNeedsExactlyOneSource) {
  expect_refusal({"run"}, 2, {"-p", "-f"});
  expect_refusal({"run", "-p", "x", "-f", "y"}, 2, {"-p", "-f"});
}

TEST(Usage, BenchRefusesWhatItCannotMeasure) {
  expect_refusal({"bench", "decode", "--context", "32", "--tokens", "32"}, 2, {"--context 32"});
  expect_refusal({"bench", "decode", "--context", "1k"}, 2, {"--context", "1k"});
  expect_refusal({"bench", "decode", "--budget", "8", "--page-size", "16"}, 2, {"--budget 8"});
  expect_refusal({"bench", "profile", "--context", "16", "--tokens", "16"}, 2, {"--context 16"});
  expect_refusal({"bench", "profile", "--context", "8,x"}, 2, {"--context", "8,x"});
  expect_refusal({"bench", "profile", "--repeat", "0"}, 2, {"--repeat 0"});
  expect_refusal({"bench", "decode", "--peer", "nobody"}, 2, {"--peer", "nobody"});
  expect_refusal({"bench", "decode", "--peer", "llama.cpp-plain", "--kv", "q8_0"}, 2,
                 {"--peer llama.cpp-plain", "--kv q8_0"});
}

TEST(Usage, HelpAndVersionSucceed) {
  for (const char* flag : {"--help", "--version"}) {
    const ProgramResult result = run_program({flag});
    EXPECT_EQ(result.status, 0) << flag;
    EXPECT_THAT(result.out, HasSubstr("quest"));
    EXPECT_EQ(result.err, "");
  }
}

TEST(Failure, MissingFilesAreNamed) {
  expect_refusal({"run", "-m", "/nonexistent/model.gguf", "-p", "x"}, 1,
                 {"/nonexistent/model.gguf"});
  expect_refusal({"run", "-f", "/nonexistent/prompt.txt"}, 1, {"/nonexistent/prompt.txt"});
  expect_refusal({"ask", "/nonexistent/doc.txt", "Why?"}, 1, {"/nonexistent/doc.txt"});
  expect_refusal({"ask", "/", "Why?"}, 1, {"directory"});
}

TEST(Failure, FileThatIsNoGgufIsNamed) {
  const TemporaryFolder folder;
  const std::string path = folder / "odd.gguf";
  write_file(path, "Once upon a time there was no model at all.");
  expect_refusal({"run", "-m", path, "-p", "x"}, 1, {path});
}

// Header of a version 3 GGUF file with its two counts.
std::string gguf_header(std::uint64_t tensors, std::uint64_t fields) {
  std::string bytes = "GGUF";
  const auto append = [&](std::uint64_t value, int size) {
    for (int i = 0; i < size; ++i) bytes += static_cast<char>(value >> (8 * i) & 0xff);
  };
  append(3, 4);
  append(tensors, 8);
  append(fields, 8);
  return bytes;
}

TEST(Failure, GgufWithAbsurdCountsIsNamed) {
  const TemporaryFolder folder;
  const std::string path = folder / "absurd.gguf";
  for (const std::uint64_t count : {std::uint64_t{1} << 40, ~std::uint64_t{0}}) {
    write_file(path, gguf_header(count, 1));
    expect_refusal({"inspect", path}, 1, {path});
    write_file(path, gguf_header(1, count));
    expect_refusal({"inspect", path}, 1, {path});
  }
}

TEST(Failure, OutputThatCannotBeWrittenIsRefusedFirst) {
  expect_refusal({"run", "-p", "x", "-o", "/nonexistent/out.txt"}, 1, {"/nonexistent/out.txt"});
  expect_refusal({"run", "-p", "x", "-o", "/"}, 1, {"'/'"});
}

using FailureWithModel = PackagedModelTest;

TEST_F(FailureWithModel, TruncatedGgufIsNamed) {
  const TemporaryFolder folder;
  const std::string path = folder / "short.gguf";
  const std::string whole = read_file(packaged_model());
  for (const std::size_t size : {std::size_t{20}, std::size_t{100000}, whole.size() - 1000}) {
    write_file(path, std::string_view(whole).substr(0, size));
    expect_refusal({"run", "-m", path, "-p", "x"}, 1, {path});
  }
}

TEST_F(FailureWithModel, PromptLongerThanTheContextNamesBothNumbers) {
  const TemporaryFolder folder;
  const std::string path = folder / "doc.txt";
  std::string text;
  for (int i = 0; i < 99; ++i) text += " a";
  write_file(path, text);
  expect_refusal({"run", "-c", "64", "-f", path}, 2, {"99 tokens", "context of 64", "-c"});
  expect_refusal({"ask", "-c", "64", path, " a"}, 2, {"context of 64 tokens", "-c"});
}

TEST_F(FailureWithModel, ContextBeyondTrainingNeedsInsisting) {
  expect_refusal({"run", "-p", "x", "-c", "100000"}, 2, {"100000", "8192", "--long-context"});
  const ProgramResult result =
      run_program({"run", "-p", "Once", "-n", "1", "-c", "100000", "--long-context"});
  EXPECT_EQ(result.status, 0) << result.err;
}

TEST_F(FailureWithModel, FullDeviceIsReported) {
  for (const char* flag : {"--json", "--no-reencode"}) {
    ProgramSetup setup;
    setup.output_path = "/dev/full";
    const ProgramResult result = run_program({"run", "-p", "Once", "-n", "2", flag}, setup);
    EXPECT_EQ(result.status, 1);
    EXPECT_THAT(result.err, HasSubstr("standard output"));
  }
  expect_refusal({"run", "-p", "Once", "-n", "2", "-o", "/dev/full"}, 1, {"/dev/full"});
}

TEST_F(FailureWithModel, NothingHalfWrittenRemains) {
  const TemporaryFolder folder;
  const std::string path = folder / "answer.txt";
  write_file(path, "old");
  expect_refusal({"run", "-m", "/nonexistent/model.gguf", "-p", "x", "-o", path}, 1,
                 {"/nonexistent/model.gguf"});
  EXPECT_EQ(read_file(path), "old");
  const ProgramResult result = run_program({"run", "-p", "Once", "-n", "2", "-o", path});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.out, "");
  EXPECT_NE(read_file(path), "old");
  const auto entries = std::filesystem::directory_iterator(folder.path());
  EXPECT_EQ(std::distance(begin(entries), end(entries)), 1);
}

}  // namespace
}  // namespace quest::testing
