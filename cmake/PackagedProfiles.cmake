# Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#
# Writes the header HEADER with the text of every calibrated profile of the list PROFILES.

function(quest_write_profiles header)
  set(texts "")
  foreach(profile IN LISTS ARGN)
    file(READ ${profile} text)
    string(APPEND texts "    R\"profile(${text})profile\",\n")
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${profile})
  endforeach()
  list(LENGTH ARGN count)
  file(CONFIGURE OUTPUT ${header} @ONLY CONTENT "// Written by cmake/PackagedProfiles.cmake.
#pragma once

#include <array>
#include <string_view>

namespace quest::cli {

inline constexpr std::array<std::string_view, ${count}> kPackagedProfiles = {
${texts}};

}  // namespace quest::cli
")
endfunction()
