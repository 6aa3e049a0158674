# Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#
# Run at every build (cmake -P): writes the header HEADER with version, commit and compiler, and
# leaves its time alone when nothing changed, so that a new commit recompiles one source file.

set(commit unknown)
find_program(git_program git)
if(git_program)
  # Ask for the tree's own repository: a release archive unpacked inside another one has none.
  execute_process(COMMAND ${git_program} rev-parse --show-cdup HEAD WORKING_DIRECTORY ${SOURCE_DIR}
                  RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_QUIET)
  if(result EQUAL 0 AND output MATCHES "^\n?([0-9a-f]+)\n$")
    string(SUBSTRING "${CMAKE_MATCH_1}" 0 12 commit)
    execute_process(COMMAND ${git_program} diff --quiet HEAD -- WORKING_DIRECTORY ${SOURCE_DIR}
                    RESULT_VARIABLE dirty ERROR_QUIET)
    if(dirty)
      string(APPEND commit "-dirty")
    endif()
  endif()
endif()
set(content
    "// Written by cmake/BuildInfo.cmake.
#pragma once
#define QUEST_VERSION \"${VERSION}\"
#define QUEST_COMMIT \"${commit}\"
#define QUEST_COMPILER \"${COMPILER}\"
")
set(old "")
if(EXISTS ${HEADER})
  file(READ ${HEADER} old)
endif()
if(NOT old STREQUAL content)
  file(WRITE ${HEADER} "${content}")
endif()
