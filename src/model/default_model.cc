// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include <cstdlib>
#include <filesystem>

#include "quest/model.h"

namespace quest {
namespace {

// Folder of the running program; empty if the system does not tell.
std::filesystem::path program_folder() {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
}

}  // namespace

std::string default_model_path() {
  if (const char* path = std::getenv("QUEST_MODEL"); path != nullptr && *path != '\0') return path;
  constexpr const char* kFileName = "SmolLM2-135M-Instruct.Q4_1.gguf";
  for (const char* folder : {
#ifdef QUEST_INSTALL_MODEL_DIR
           QUEST_INSTALL_MODEL_DIR,  // relative to the program: an installed tree may be moved
#endif
#ifdef QUEST_BUILD_MODEL_DIR
           QUEST_BUILD_MODEL_DIR,
#endif
           ""}) {
    if (*folder == '\0') continue;
    // An absolute folder replaces the program's.
    const std::filesystem::path path = (program_folder() / folder / kFileName).lexically_normal();
    std::error_code error;
    if (path.is_absolute() && std::filesystem::is_regular_file(path, error)) return path.string();
  }
  return "";
}

}  // namespace quest
