# Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#
# Where ggml, llama.cpp and the packaged model come from. A llama.cpp in the user's
# CMAKE_PREFIX_PATH, cache variable or environment, wins over the one of scripts/setup.sh.

if(DEFINED ENV{QUEST_DEPS} AND NOT "$ENV{QUEST_DEPS}" STREQUAL "")
  set(quest_deps_default "$ENV{QUEST_DEPS}")
else()
  set(quest_deps_default "${PROJECT_SOURCE_DIR}/.deps")
endif()
get_filename_component(quest_deps_default "${quest_deps_default}" ABSOLUTE
                       BASE_DIR "${PROJECT_SOURCE_DIR}")
set(QUEST_DEPS "${quest_deps_default}" CACHE PATH
    "Folder that scripts/setup.sh filled: llama/ and model/")

# CMake looks into the variable before the environment, so the environment is spelled out here.
set(quest_prefixes ${CMAKE_PREFIX_PATH})
if(DEFINED ENV{CMAKE_PREFIX_PATH})
  string(REPLACE ":" ";" quest_environment_prefixes "$ENV{CMAKE_PREFIX_PATH}")
  list(APPEND quest_prefixes ${quest_environment_prefixes})
endif()
set(CMAKE_PREFIX_PATH ${quest_prefixes} "${QUEST_DEPS}/llama")

find_package(ggml QUIET)
find_package(llama QUIET)
if(NOT ggml_FOUND OR NOT llama_FOUND)
  message(FATAL_ERROR "ggml and llama.cpp were not found in: ${CMAKE_PREFIX_PATH}\n"
                      "Run scripts/setup.sh, or name your own llama.cpp in CMAKE_PREFIX_PATH.")
endif()
message(STATUS "llama.cpp: ${llama_DIR}")

# True if the libraries are the ones that set-up compiled, which `install` takes along.
file(REAL_PATH "${llama_DIR}" quest_llama_dir)
file(REAL_PATH "${QUEST_DEPS}/llama" quest_bundled_llama)
string(FIND "${quest_llama_dir}/" "${quest_bundled_llama}/" quest_llama_position)
if(quest_llama_position EQUAL 0)
  set(QUEST_BUNDLED_LLAMA TRUE)
else()
  set(QUEST_BUNDLED_LLAMA FALSE)
endif()

find_package(hwy REQUIRED)
find_package(Threads REQUIRED)
