// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "program.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>
#include <stdexcept>
#include <thread>

extern char** environ;

namespace quest::testing {

TemporaryFolder::TemporaryFolder() {
  std::string name = (std::filesystem::temp_directory_path() / "quest-cli-XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary folder");
  path_ = name;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

void write_file(const std::filesystem::path& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary)
      .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

ProgramResult run_program(const std::vector<std::string>& arguments, const ProgramSetup& setup) {
  const TemporaryFolder folder;
  const std::string in = folder / "in";
  const std::string out = setup.output_path.empty() ? (folder / "out").string() : setup.output_path;
  const std::string err = folder / "err";
  write_file(in, setup.input);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, in.c_str(), O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, out.c_str(), O_WRONLY | O_CREAT, 0600);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, err.c_str(), O_WRONLY | O_CREAT, 0600);
  std::vector<std::string> copy = arguments;
  copy.insert(copy.begin(), QUEST_PROGRAM);
  std::vector<char*> argv;
  for (std::string& argument : copy) argv.push_back(argument.data());
  argv.push_back(nullptr);
  pid_t pid = 0;
  const int error = posix_spawn(&pid, QUEST_PROGRAM, &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) throw std::runtime_error("cannot start " QUEST_PROGRAM);

  if (setup.while_running) setup.while_running(pid, out);
  int status = 0;
  ::waitpid(pid, &status, 0);
  ProgramResult result;
  result.status = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  if (setup.output_path.empty()) result.out = read_file(out);
  result.err = read_file(err);
  return result;
}

namespace {

// A line of /proc/PID/status by its name, empty if the process is gone.
std::string status_line(pid_t pid, std::string_view name) {
  std::istringstream status(read_file("/proc/" + std::to_string(pid) + "/status"));
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(name)) return line.substr(name.size());
  }
  return {};
}

}  // namespace

void expect_refusal(const std::vector<std::string>& arguments, int status,
                    const std::vector<std::string>& messages) {
  const ProgramResult result = run_program(arguments);
  EXPECT_EQ(result.status, status) << result.err;
  EXPECT_EQ(result.out, "");
  EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
  for (const std::string& message : messages)
    EXPECT_THAT(result.err, ::testing::HasSubstr(message));
}

bool is_running(pid_t pid) {
  const std::string state = status_line(pid, "State:");
  return !state.empty() && state.find('Z') == std::string::npos;
}

bool wait_until_caught(pid_t pid, int signal) {
  while (is_running(pid)) {
    const std::string caught = status_line(pid, "SigCgt:");
    if (!caught.empty() && (std::stoull(caught, nullptr, 16) >> (signal - 1) & 1) != 0) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return false;
}

}  // namespace quest::testing
