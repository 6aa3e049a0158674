// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace quest::testing {

/// A folder of its own for one test, gone with it.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  std::filesystem::path operator/(std::string_view name) const { return path_ / name; }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

void write_file(const std::filesystem::path& path, std::string_view bytes);
std::string read_file(const std::filesystem::path& path);

struct ProgramResult {
  int status = -1;  ///< exit status, or -signal if a signal ended it
  std::string out;
  std::string err;
};

/// How to run the program, beyond its arguments.
struct ProgramSetup {
  std::string input;        ///< standard input
  std::string output_path;  ///< where standard output goes instead of `ProgramResult::out`
  /// Called with the running process and the file that collects its standard output.
  std::function<void(pid_t, const std::filesystem::path&)> while_running;
};

/// Runs the quest program to its end.
ProgramResult run_program(const std::vector<std::string>& arguments,
                          const ProgramSetup& setup = {});

/// Runs the program, which must refuse with this exit status: nothing on stdout, one line on stderr
/// that holds every one of `messages`.
void expect_refusal(const std::vector<std::string>& arguments, int status,
                    const std::vector<std::string>& messages);

/// False once process `pid` has ended.
bool is_running(pid_t pid);

/// True once process `pid` has a handler of its own for `signal`; false if it ended before.
bool wait_until_caught(pid_t pid, int signal);

}  // namespace quest::testing
