// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "gpu_check/sanitizer.h"

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "quest/error.h"

namespace quest::gpu_check {

namespace {

constexpr const char* kName = "compute-sanitizer";
/// Exit status of compute-sanitizer where it has found an error, and of timeout.
constexpr int kFound = 99;
constexpr int kTimeOut = 124;
/// Bytes of output that are kept, the last ones.
constexpr std::size_t kMostOutput = 4000;

bool is_program(const std::string& path) { return access(path.c_str(), X_OK) == 0; }

std::string environment(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr ? value : "";
}

/// For the shell.
std::string quoted(const std::string& text) {
  std::string result = "'";
  for (const char c : text) {
    if (c == '\'') {
      result += "'\\''";
    } else {
      result += c;
    }
  }
  return result + "'";
}

/// Exit status and the end of the output of a command.
std::pair<int, std::string> run(const std::string& command) {
  std::FILE* const pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) throw Error("cannot run " + command);
  std::string output;
  std::array<char, 4096> buffer{};
  while (const std::size_t count = std::fread(buffer.data(), 1, buffer.size(), pipe)) {
    output.append(buffer.data(), count);
    if (output.size() > 2 * kMostOutput) output.erase(0, output.size() - kMostOutput);
  }
  const int status = pclose(pipe);
  if (output.size() > kMostOutput) output.erase(0, output.size() - kMostOutput);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, output};
}

}  // namespace

std::string find_sanitizer() {
  std::vector<std::string> folders;
  const std::string home = environment("CUDA_HOME");
  if (!home.empty()) folders.push_back(home + "/bin");
  std::istringstream path(environment("PATH"));
  for (std::string folder; std::getline(path, folder, ':');) folders.push_back(folder);
  folders.emplace_back("/usr/local/cuda/bin");
  for (const std::string& folder : folders) {
    std::string candidate = folder + "/" + kName;
    if (is_program(candidate)) return candidate;
  }
  return "";
}

cli::Json check_sanitizer(const std::string& sanitizer, const std::string& program, int device,
                          int seconds) {
  cli::Json runs = cli::Json::array();
  if (sanitizer.empty()) {
    return {{"failed", 0},
            {"runs", runs},
            {"skipped", "compute-sanitizer is not in CUDA_HOME, PATH or /usr/local/cuda"}};
  }
  int failed = 0;
  for (const char* tool : {"memcheck", "racecheck", "synccheck"}) {
    std::ostringstream command;
    command << "timeout -k 2 " << seconds << ' ' << quoted(sanitizer) << " --tool " << tool
            << " --error-exitcode " << kFound << ' ' << quoted(program) << " --quick --device "
            << device << " 2>&1";
    const auto [status, output] = run(command.str());
    const char* const result = status == 0          ? "passed"
                               : status == kTimeOut ? "unfinished"
                                                    : "failed";
    cli::Json row{{"tool", tool}, {"result", result}};
    if (status != 0) row["output"] = output;
    if (status != 0 && status != kTimeOut) ++failed;
    std::fprintf(stderr, "%s --tool %s: %s\n", kName, tool, result);
    runs.push_back(row);
  }
  return {{"failed", failed}, {"runs", runs}};
}

}  // namespace quest::gpu_check
