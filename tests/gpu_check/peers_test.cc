// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
// What other programs measured on the same GPU: the script that measures, the file between, and
// the comparison with our rows.
#include "gpu_check/peers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <utility>

#include "cli/program.h"
#include "gpu_check/made_up_rows.h"
#include "quest/error.h"

namespace quest::testing {
namespace {

using cli::Json;
using ::testing::HasSubstr;

constexpr const char* kGpu = "NVIDIA Made-Up";

Json peers_file() {
  return {{"quest_peers", 1},
          {"device", kGpu},
          {"versions", {{"torch", "2.9"}}},
          {"rows", Json::array({peer_row("torch sdpa", 32768, 600e-6)})},
          {"skipped", Json::array()}};
}

/// The message of the refusal of a file with this text.
std::string refusal_of(const std::string& text) {
  const TemporaryFolder folder;
  const std::string path = folder / "peers.json";
  write_file(path, text);
  try {
    gpu_check::read_peers(path, kGpu);
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr("peers '" + path + "'"));
    EXPECT_THAT(error.what(), HasSubstr("scripts/gpu_peers.py"));
    return error.what();
  }
  return "accepted";
}

TEST(GpuPeers, RowsStandBesideOursOfTheSameShape) {
  Json peers =
      Json::array({peer_row("torch sdpa", 32768, 600e-6), peer_row("flashinfer", 777, 1e-5)});
  Json other_batch = our_row("quest", 32768, 512, 1e-6, 1e-6, 64);
  Json rows = our_rows();
  rows.push_back(other_batch);
  const Json compared = gpu_check::compare_peers(peers, rows);
  ASSERT_EQ(compared.size(), 2U);
  EXPECT_EQ(compared[0]["engine"], "torch sdpa");
  EXPECT_DOUBLE_EQ(compared[0]["dense_seconds"].get<double>(), 400e-6);
  EXPECT_DOUBLE_EQ(compared[0]["over_dense"].get<double>(), 1.5);
  ASSERT_EQ(compared[0]["quest"].size(), 2U);  // by rising budget
  EXPECT_EQ(compared[0]["quest"][0]["budget"], 512);
  EXPECT_DOUBLE_EQ(compared[0]["quest"][0]["speedup"].get<double>(), 30);
  EXPECT_EQ(compared[0]["quest"][1]["budget"], 2048);
  EXPECT_DOUBLE_EQ(compared[0]["quest"][1]["speedup"].get<double>(), 15);
  // A shape that we did not measure.
  EXPECT_TRUE(compared[1]["dense_seconds"].is_null());
  EXPECT_TRUE(compared[1]["over_dense"].is_null());
  EXPECT_TRUE(compared[1]["quest"].empty());
}

TEST(GpuPeers, EachFieldOfTheShapeCounts) {
  for (const char* field : {"context", "batch", "q_heads", "kv_heads", "head_dim"}) {
    Json peer = peer_row("torch sdpa", 32768, 600e-6);
    peer[field] = 3;
    const Json compared = gpu_check::compare_peers(Json::array({peer}), our_rows());
    EXPECT_TRUE(compared[0]["dense_seconds"].is_null()) << field;
  }
  Json peer = peer_row("torch sdpa", 32768, 600e-6);
  peer["kv"] = "bf16";
  EXPECT_TRUE(gpu_check::compare_peers(Json::array({peer}), our_rows())[0]["quest"].empty());
}

TEST(GpuPeers, FilesThatCannotBeUsedAreRefused) {
  EXPECT_EQ(refusal_of(peers_file().dump()), "accepted");
  EXPECT_THAT(refusal_of(""), HasSubstr("not a JSON object"));
  EXPECT_THAT(refusal_of("{\"quest_peers\": 1"), HasSubstr("not a JSON object"));
  EXPECT_THAT(refusal_of("[1]"), HasSubstr("not a JSON object"));
  const auto without = [](const char* field) {
    Json file = peers_file();
    file.erase(field);
    return refusal_of(file.dump());
  };
  for (const char* field : {"quest_peers", "device", "versions", "rows", "skipped"}) {
    EXPECT_THAT(without(field), HasSubstr("'" + std::string(field) + "'"));
  }
  const auto with = [](const char* field, const Json& value) {
    Json file = peers_file();
    file[field] = value;
    return refusal_of(file.dump());
  };
  EXPECT_THAT(with("quest_peers", 2), HasSubstr("'quest_peers' is not 1"));
  EXPECT_THAT(with("device", "NVIDIA Other"),
              HasSubstr("measured on 'NVIDIA Other', and this is 'NVIDIA Made-Up'"));
  EXPECT_THAT(with("rows", Json::array({7})), HasSubstr("row 0: 'engine' is not a text"));
  EXPECT_THAT(with("skipped", Json::array({7})), HasSubstr("skipped: 'engine' is not a text"));
  EXPECT_THAT(
      with("skipped", Json::array({{{"engine", "x"}, {"reason", "y"}, {"q_heads", "many"}}})),
      HasSubstr("skipped: 'context' is not a whole number"));
  const auto row_with = [&](const char* field, const Json& value) {
    Json row = peer_row("flashinfer", 2048, 1e-5);
    row[field] = value;
    return with("rows", Json::array({peer_row("torch sdpa", 2048, 1e-5), row}));
  };
  EXPECT_THAT(row_with("context", 0), HasSubstr("row 1: 'context' is not a whole number above 0"));
  EXPECT_THAT(row_with("batch", 1.5), HasSubstr("row 1: 'batch'"));
  EXPECT_THAT(row_with("kv", 16), HasSubstr("row 1: 'kv' is not a text"));
  EXPECT_THAT(row_with("seconds", 0), HasSubstr("row 1: 'seconds' is not a number above 0"));
  EXPECT_THAT(row_with("seconds", nullptr), HasSubstr("row 1: 'seconds'"));
  EXPECT_THROW(gpu_check::read_peers("/nonexistent/peers.json", kGpu), FileError);
}

/// Runs scripts/gpu_peers.py with modules of our own before any other and reads what it wrote.
Json run_script(const std::vector<std::pair<std::string, std::string>>& modules) {
  const TemporaryFolder folder;
  for (const auto& [name, text] : modules) write_file(folder / name, text);
  const std::string path = folder / "peers.json";
  const std::string command = "PYTHONDONTWRITEBYTECODE=1 PYTHONPATH='" + folder.path().string() +
                              "' python3 '" QUEST_SOURCE_DIR "/scripts/gpu_peers.py' --quick -o '" +
                              path.c_str() + "' 2> /dev/null";
  EXPECT_EQ(std::system(command.c_str()), 0);
  return gpu_check::read_peers(path, kGpu);
}

TEST(GpuPeersScript, MissingPackagesAreNamedAndSkipped) {
  const Json peers = run_script({{"torch.py", "raise ImportError('none here')\n"}});
  EXPECT_TRUE(peers["rows"].empty());
  ASSERT_EQ(peers["skipped"].size(), 2U);
  EXPECT_EQ(peers["skipped"][0]["engine"], "torch sdpa");
  EXPECT_EQ(peers["skipped"][1]["engine"], "flashinfer");
  for (const Json& entry : peers["skipped"]) {
    EXPECT_EQ(entry["reason"], "torch cannot be imported: none here");
  }
}

/// A stand-in whose clock says 2 ms for the 20 steps that are timed.
constexpr const char* kFakeTorch = R"(import sys
from unittest.mock import MagicMock
fake = MagicMock()
fake.__name__, fake.__version__ = "torch", "2.9"
fake.cuda.is_available.return_value = AVAILABLE
fake.cuda.mem_get_info.return_value = (100 << 20, 200 << 20)
fake.cuda.get_device_name.return_value = "NVIDIA Made-Up"
fake.cuda.Event.return_value.elapsed_time.return_value = 2.0
sys.modules["torch"] = fake
)";

constexpr const char* kFakeFlashInfer = R"(import sys
from unittest.mock import MagicMock
fake = MagicMock()
fake.__name__, fake.__version__ = "flashinfer", "0.5"
sys.modules["flashinfer"] = fake
)";

std::string fake_torch(const std::string& available) {
  std::string text = kFakeTorch;
  return text.replace(text.find("AVAILABLE"), 9, available);
}

TEST(GpuPeersScript, WithoutADeviceNothingIsMeasured) {
  const Json peers = run_script({{"torch.py", fake_torch("False")}});
  EXPECT_TRUE(peers["rows"].empty());
  EXPECT_EQ(peers["skipped"][0]["reason"], "torch finds no CUDA device");
}

TEST(GpuPeersScript, RowsHaveTheShapesOfTheCheck) {
  const Json peers = run_script(
      {{"torch.py", fake_torch("True")}, {"flashinfer.py", "raise ImportError('none here')\n"}});
  EXPECT_EQ(peers["device"], kGpu);
  EXPECT_EQ(peers["versions"], (Json{{"torch", "2.9"}}));
  // --quick: 2,048 tokens, batch 1 and 2, three head counts. With 32 KV heads a batch of 2 takes
  // 64 MiB, more than half of the memory that is free.
  EXPECT_EQ(peers["rows"].size(), 5U);
  for (const Json& row : peers["rows"]) {
    EXPECT_EQ(row["engine"], "torch sdpa");
    EXPECT_EQ(row["context"], 2048);
    EXPECT_DOUBLE_EQ(row["seconds"].get<double>(), 1e-4);
  }
  ASSERT_EQ(peers["skipped"].size(), 2U);
  EXPECT_EQ(peers["skipped"][0]["reason"], "flashinfer cannot be imported: none here");
  EXPECT_EQ(peers["skipped"][1]["reason"], "memory");
  EXPECT_EQ(peers["skipped"][1]["batch"], 2);
}

TEST(GpuPeersScript, EveryArmThatIsThereHasItsRows) {
  const Json peers =
      run_script({{"torch.py", fake_torch("True")}, {"flashinfer.py", kFakeFlashInfer}});
  EXPECT_EQ(peers["versions"], (Json{{"torch", "2.9"}, {"flashinfer", "0.5"}}));
  ASSERT_EQ(peers["rows"].size(), 10U);
  EXPECT_EQ(peers["rows"][0]["engine"], "torch sdpa");
  EXPECT_EQ(peers["rows"][1]["engine"], "flashinfer");
  EXPECT_DOUBLE_EQ(peers["rows"][1]["seconds"].get<double>(), 1e-4);
}

}  // namespace
}  // namespace quest::testing
