// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include <ggml.h>
#include <llama.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstring>
#include <exception>
#include <new>
#include <string>

#include "build_info.h"
#include "commands.h"
#include "output.h"
#include "quest/error.h"

namespace {

constexpr int kFailure = 1;
constexpr int kUsage = 2;

void ignore_log(ggml_log_level /*level*/, const char* /*text*/, void* /*data*/) {}

// Model libraries log while they load; that is only wanted with -v, whichever subcommand it is
// given to, and the log starts before a subcommand could say so.
void silence_libraries(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "-v") == 0 || std::strcmp(argv[i], "--verbose") == 0) return;
  }
  llama_log_set(ignore_log, nullptr);
  ggml_log_set(ignore_log, nullptr);
}

int report(const std::string& message, int status) {
  std::string line = message;
  for (char& c : line) {
    if (c == '\n') c = ' ';
  }
  std::fprintf(stderr, "quest: %s\n", line.c_str());
  return status;
}

int run_program(CLI::App& app, int argc, char** argv, const int& status) {
  try {
    app.parse(argc, argv);
    return status;
  } catch (const CLI::Success& success) {  // --help, --version
    return app.exit(success);
  } catch (const CLI::ParseError& error) {
    return report(std::string(error.what()) + "; see quest --help or quest COMMAND --help", kUsage);
  } catch (const quest::InvalidArgument& error) {
    return report(error.what(), kUsage);
  } catch (const quest::cli::ClosedPipe&) {
    return kFailure;
  } catch (const std::bad_alloc&) {
    return report("out of memory; try a smaller -c", kFailure);
  } catch (const std::exception& error) {
    return report(error.what(), kFailure);
  }
}

}  // namespace

// Only the library of options can throw here, out of memory before anything has begun.
int main(int argc, char** argv) {  // NOLINT(bugprone-exception-escape)
  silence_libraries(argc, argv);
  CLI::App app{"Answers from long contexts with query-aware sparse attention", "quest"};
  app.set_version_flag("--version",
                       "quest " QUEST_VERSION " (" QUEST_COMMIT ", " QUEST_COMPILER ")");
  app.require_subcommand(1);
  int status = 0;
  quest::cli::add_run_command(app, status);
  quest::cli::add_ask_command(app, status);
  quest::cli::add_chat_command(app, status);
  quest::cli::add_inspect_command(app, status);
  quest::cli::add_bench_command(app, status);
  quest::cli::add_eval_command(app, status);
  quest::cli::add_calibrate_command(app, status);
  return run_program(app, argc, argv, status);
}
