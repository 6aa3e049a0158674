// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include <cstdlib>
#include <filesystem>

#include "quest/model.h"

namespace quest {

std::string default_model_path() {
  if (const char* path = std::getenv("QUEST_MODEL"); path != nullptr && *path != '\0') return path;
  constexpr const char* kFileName = "SmolLM2-135M-Instruct.Q4_1.gguf";
  for (const char* folder : {
#ifdef QUEST_BUILD_MODEL_DIR
           QUEST_BUILD_MODEL_DIR,
#endif
#ifdef QUEST_INSTALL_MODEL_DIR
           QUEST_INSTALL_MODEL_DIR,
#endif
           ""}) {
    const std::filesystem::path path = std::filesystem::path(folder) / kFileName;
    std::error_code error;
    if (*folder != '\0' && std::filesystem::is_regular_file(path, error)) return path.string();
  }
  return "";
}

}  // namespace quest
