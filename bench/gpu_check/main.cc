// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
// quest-gpu-check: what the tests cannot check without a GPU. Correctness of the kernels, also
// under compute-sanitizer, a captured step, then times. One JSON object on standard output or in a
// file.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "attention/cuda/cuda_device.h"
#include "build_info.h"
#include "gpu_check/correctness.h"
#include "gpu_check/gpu.h"
#include "gpu_check/peers.h"
#include "gpu_check/repeats.h"
#include "gpu_check/report.h"
#include "gpu_check/sanitizer.h"
#include "gpu_check/tables.h"
#include "gpu_check/targets.h"
#include "output.h"
#include "quest/cuda.h"
#include "quest/error.h"

namespace {

struct Options {
  int device = 0;
  bool quick = false;
  double seconds = 110;  ///< of the tables
  std::string output;
  std::string html;
  std::string peers;
};

using quest::cli::Json;

/// Seconds that each tool of compute-sanitizer may take.
constexpr int kSanitizerSeconds = 20;

std::string own_path() { return std::filesystem::read_symlink("/proc/self/exe").string(); }

/// Says how many of each kind failed; the exit status.
int report_failures(const std::vector<std::pair<const char*, Json>>& checks) {
  int all = 0;
  for (const auto& [what, result] : checks) {
    const int failed = result.at("failed").get<int>();
    std::fprintf(stderr, "quest-gpu-check: %d %s failed\n", failed, what);
    all += failed;
  }
  return all == 0 ? 0 : 1;
}

int run(const Options& options) {
  if (!options.html.empty() && options.html == options.output) {
    throw quest::InvalidArgument("-o and --html both name '" + options.html + "'; give two files");
  }
  if (options.quick && !(options.output + options.html + options.peers).empty()) {
    throw quest::InvalidArgument("--quick measures nothing; leave out -o, --html and --peers");
  }
  quest::require_cuda();
  const auto make = [&](quest::KvCache& cache, quest::SelectionPolicy policy) {
    return quest::make_cuda_backend(cache, std::move(policy), options.device);
  };
  if (options.quick) {
    return report_failures({{"cases", quest::gpu_check::check_correctness(make, true)}});
  }
  const std::string gpu = quest::gpu_check::device_name(options.device);
  // Bad paths and files are refused before minutes of work.
  quest::cli::Output output(options.output);
  std::optional<quest::cli::Output> html = quest::cli::side_output(options.html, "--html");
  Json peers;
  if (!options.peers.empty()) peers = quest::gpu_check::read_peers(options.peers, gpu);

  Json json{{"version", QUEST_VERSION},
            {"commit", QUEST_COMMIT},
            {"compiler", QUEST_COMPILER},
            {"gpu", gpu},
            {"driver", quest::gpu_check::driver_version()}};
  // First, while this program has nothing on the device.
  json["sanitizer"] = quest::gpu_check::check_sanitizer(
      quest::gpu_check::find_sanitizer(), own_path(), options.device, kSanitizerSeconds);
  json["correctness"] = quest::gpu_check::check_correctness(make, false);
  json["graph"] = quest::gpu_check::check_graph(options.device);
  json["repeats"] = quest::gpu_check::check_repeats(*quest::cuda::open_device(options.device), {});
  json["tables"] = quest::gpu_check::measure_tables(options.device, options.seconds);
  json["targets"] = quest::gpu_check::judge_targets(json["tables"]["rows"]);
  if (!peers.is_null()) {
    peers["rows"] = quest::gpu_check::compare_peers(peers["rows"], json["tables"]["rows"]);
    json["peers"] = peers;
  }
  output.write(json.dump(2) + "\n");
  if (html) html->write(quest::cli::as_html(quest::gpu_check::make_report(json)));
  output.finish();
  if (html) html->finish();
  return report_failures({{"cases", json["correctness"]},
                          {"replays of a captured step", json["graph"]},
                          {"repeats", json["repeats"]},
                          {"runs of compute-sanitizer", json["sanitizer"]}});
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Checks the CUDA backend of Quest on a GPU and measures it");
  app.add_option("--device", options.device, "Index of the GPU")->capture_default_str();
  app.add_flag("--quick", options.quick,
               "The results of a few small shapes alone, which is what compute-sanitizer runs");
  app.add_option("--seconds", options.seconds, "Time for the tables")->capture_default_str();
  app.add_option("-o,--output", options.output, "Write the JSON to this file");
  app.add_option("--html", options.html, "Write a report with charts to this file");
  app.add_option("--peers", options.peers,
                 "What scripts/gpu_peers.py measured on this GPU, to be shown beside");
  CLI11_PARSE(app, argc, argv);
  try {
    return run(options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "quest-gpu-check: %s\n", error.what());
    return 1;
  }
}
