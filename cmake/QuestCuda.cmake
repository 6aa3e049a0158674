# Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#
# The CUDA language and runtime, for -DQUEST_CUDA=ON. The default architectures are those of `make
# cuda-all`; the last one also goes along as PTX, for newer GPUs.

if(NOT DEFINED CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
  find_program(QUEST_NVCC nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda PATH_SUFFIXES bin)
  if(NOT QUEST_NVCC)
    message(FATAL_ERROR "QUEST_CUDA is on but nvcc was not found: install the CUDA toolkit (12.8 or newer) "
                        "or name its compiler in CMAKE_CUDA_COMPILER")
  endif()
  set(CMAKE_CUDA_COMPILER ${QUEST_NVCC})
endif()
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES 80-real 86-real 89-real 90-real 100-real 120)
endif()
enable_language(CUDA)
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
if(NOT "cuda_std_20" IN_LIST CMAKE_CUDA_COMPILE_FEATURES)
  # CMake 3.25 does not know that nvcc has C++20.
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
  list(APPEND CMAKE_CUDA_COMPILE_FEATURES cuda_std_20)
endif()
# Kernels call constexpr functions of the host code.
string(APPEND CMAKE_CUDA_FLAGS " --expt-relaxed-constexpr")
find_package(CUDAToolkit REQUIRED)
