# Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#
# STEP=install: installs the build tree to WORK_DIR/first, without the model, and moves it to
# WORK_DIR/prefix, which nothing in it may notice. STEP=consume: builds and runs the consumer.
cmake_minimum_required(VERSION 3.25)

function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE result)
  if(NOT result EQUAL 0)
    list(JOIN ARGN " " command)
    message(FATAL_ERROR "failed (${result}): ${command}")
  endif()
endfunction()

# The user's own search path must not find anything that the installed tree should have named.
set(ENV{CMAKE_PREFIX_PATH} "")
set(ENV{LD_LIBRARY_PATH} "")

if(STEP STREQUAL "install")
  file(REMOVE_RECURSE ${WORK_DIR})
  run(${CMAKE_COMMAND} --install ${BUILD_DIR} --config ${CONFIG} --component quest
      --prefix ${WORK_DIR}/first)
  file(RENAME ${WORK_DIR}/first ${WORK_DIR}/prefix)
  if(EXISTS ${WORK_DIR}/prefix/bin/quest)
    run(${WORK_DIR}/prefix/bin/quest --help)
  endif()
else()
  run(${CMAKE_COMMAND} -S ${CONSUMER_DIR} -B ${WORK_DIR}/build -G ${GENERATOR}
      -DCMAKE_CXX_COMPILER=${COMPILER} -DCMAKE_BUILD_TYPE=${CONFIG}
      -DCMAKE_PREFIX_PATH=${WORK_DIR}/prefix)
  run(${CMAKE_COMMAND} --build ${WORK_DIR}/build --config ${CONFIG})
  run(${WORK_DIR}/build/consumer)
endif()
