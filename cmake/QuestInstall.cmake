# Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#
# The installed tree, which may be moved as a whole:
#   bin/quest, lib/libquest.a, include/quest/, lib/cmake/quest/ (find_package(quest)),
#   share/quest/*.gguf (the packaged model), lib/quest/llama/ (ggml and llama.cpp, unless the build
#   used a llama.cpp of the user's, which is then found where it was).

# Components: quest (all but the model), model.

include(CMakePackageConfigHelpers)
set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME quest)
set(quest_cmake_dir ${CMAKE_INSTALL_LIBDIR}/cmake/quest)

install(TARGETS quest EXPORT questTargets)
install(DIRECTORY include/quest DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING
        PATTERN "*.h")
install(EXPORT questTargets NAMESPACE quest:: DESTINATION ${quest_cmake_dir})

if(QUEST_BUNDLED_LLAMA)
  foreach(folder include lib licenses)
    install(DIRECTORY ${QUEST_DEPS}/llama/${folder} DESTINATION ${QUEST_INSTALL_LLAMA_DIR} OPTIONAL)
  endforeach()
  set(QUEST_LLAMA_PREFIX "${QUEST_INSTALL_LLAMA_DIR}")
else()
  get_filename_component(QUEST_LLAMA_PREFIX "${llama_DIR}/../../.." ABSOLUTE)
endif()
configure_package_config_file(cmake/questConfig.cmake.in questConfig.cmake
                              INSTALL_DESTINATION ${quest_cmake_dir}
                              PATH_VARS QUEST_LLAMA_PREFIX)
write_basic_package_version_file(questConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/questConfig.cmake ${PROJECT_BINARY_DIR}/questConfigVersion.cmake
        DESTINATION ${quest_cmake_dir})

if(EXISTS ${QUEST_DEPS}/model)
  install(DIRECTORY ${QUEST_DEPS}/model/ DESTINATION ${CMAKE_INSTALL_DATADIR}/quest COMPONENT model
          FILES_MATCHING PATTERN "*.gguf")
endif()
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

if(TARGET quest_cli)
  install(TARGETS quest_cli)
endif()
