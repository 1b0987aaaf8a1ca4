# SPDX-License-Identifier: Apache-2.0
# Whether the CUDA backend is built: TETRAD_WITH_CUDA. Asking for it (TETRAD_CUDA=ON) needs only a compiler, so that a
# machine without a GPU can check that everything compiles and links.
include(CheckLanguage)

# The toolkit's installer leaves it off the PATH.
find_program(TETRAD_NVCC nvcc PATHS ENV CUDA_HOME ENV CUDA_PATH /usr/local/cuda PATH_SUFFIXES bin)
mark_as_advanced(TETRAD_NVCC)

set(TETRAD_WITH_CUDA OFF)
if(TETRAD_CUDA STREQUAL "ON" OR (TETRAD_CUDA STREQUAL "AUTO" AND EXISTS /dev/nvidiactl))
  if(TETRAD_NVCC AND NOT DEFINED ENV{CUDACXX})
    set(ENV{CUDACXX} ${TETRAD_NVCC})
  endif()
  if(NOT CMAKE_CUDA_COMPILER)
    unset(CMAKE_CUDA_COMPILER CACHE)  # not found the last time; it may be here now
  endif()
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    set(TETRAD_WITH_CUDA ON)
  elseif(TETRAD_CUDA STREQUAL "ON")
    message(FATAL_ERROR "TETRAD_CUDA=ON needs nvcc (CUDA 13): put it on the PATH or set CUDACXX; "
                        "-DTETRAD_CUDA=AUTO builds without it")
  else()
    message(STATUS "There is a GPU but no nvcc: building for the CPU alone")
  endif()
elseif(TETRAD_CUDA STREQUAL "AUTO" AND TETRAD_NVCC)
  message(STATUS "There is nvcc but no GPU: building for the CPU alone (-DTETRAD_CUDA=ON compiles the CUDA backend too)")
endif()
if(NOT TETRAD_WITH_CUDA)
  return()
endif()

# The default architecture: this machine's GPU, or Hopper where there is none. From Hopper on with an `a`: 90a,
# unlike 90, has the products of whole warpgroups, and 100a, unlike 100, the casts to E2M1.
function(tetrad_default_architecture result)
  set(${result} 90a PARENT_SCOPE)
  if(NOT EXISTS /dev/nvidiactl)
    return()
  endif()
  execute_process(COMMAND nvidia-smi --query-gpu=compute_cap --format=csv,noheader --id=0
                  OUTPUT_VARIABLE capability ERROR_QUIET)
  if(NOT capability MATCHES "^([0-9]+)\\.([0-9]+)")
    message(STATUS "nvidia-smi does not say what GPU this is: compiling for Hopper (-DCMAKE_CUDA_ARCHITECTURES=… for another)")
  elseif(CMAKE_MATCH_1 GREATER_EQUAL 9)
    set(${result} "${CMAKE_MATCH_1}${CMAKE_MATCH_2}a" PARENT_SCOPE)
  else()
    set(${result} "${CMAKE_MATCH_1}${CMAKE_MATCH_2}" PARENT_SCOPE)
  endif()
endfunction()

# Everything that a path exists for: A100; RTX 3090; RTX 4090 and L40; H100 and H200; B200; B300; RTX 5090.
set(TETRAD_CUDA_KINDS "" CACHE STRING "all: compile for every kind of GPU, which takes several times as long; empty: one kind, or CMAKE_CUDA_ARCHITECTURES")
if(TETRAD_CUDA_KINDS STREQUAL "all")
  set(CMAKE_CUDA_ARCHITECTURES 80-real 86-real 89-real 90a-real 100a-real 103a-real 120a-real)
elseif(TETRAD_CUDA_KINDS)
  message(FATAL_ERROR "TETRAD_CUDA_KINDS is all or empty, not '${TETRAD_CUDA_KINDS}'; single kinds: -DCMAKE_CUDA_ARCHITECTURES=\"90a;120a\"")
elseif(NOT DEFINED CMAKE_CUDA_ARCHITECTURES AND NOT DEFINED ENV{CUDAARCHS})
  tetrad_default_architecture(CMAKE_CUDA_ARCHITECTURES)
endif()
enable_language(CUDA)
message(STATUS "The CUDA backend is built, for architecture ${CMAKE_CUDA_ARCHITECTURES}")
set(TETRAD_WARPGROUPS OFF)
if("90a" IN_LIST CMAKE_CUDA_ARCHITECTURES OR "90a-real" IN_LIST CMAKE_CUDA_ARCHITECTURES)
  set(TETRAD_WARPGROUPS ON)
endif()
find_package(CUDAToolkit REQUIRED)
# Optional, and used on Hopper alone; -DCMAKE_DISABLE_FIND_PACKAGE_CUDNN=ON builds without it.
find_package(CUDNN 9)
# Optional, for runs on several GPUs.
find_package(NCCL 2.28)
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 does not know that CUDA 13 speaks C++20
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
endif()
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
set(CMAKE_CUDA_FLAGS_RELEASE "-O3")
# numerics/ is shared with the host: constexpr functions are device functions too.
target_compile_options(tetrad_flags INTERFACE
  "$<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr;--extended-lambda;-Xcompiler=-Wall,-ffp-contract=off;--threads=2>")
