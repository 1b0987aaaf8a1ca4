# Whether the CUDA backend is built: TETRAD_WITH_CUDA. Asking for it (TETRAD_CUDA=ON) needs only a compiler, so that a
# machine without a GPU can check that everything compiles and links.
include(CheckLanguage)
set(TETRAD_WITH_CUDA OFF)
if(TETRAD_CUDA STREQUAL "ON" OR (TETRAD_CUDA STREQUAL "AUTO" AND EXISTS /dev/nvidiactl))
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    set(TETRAD_WITH_CUDA ON)
  elseif(TETRAD_CUDA STREQUAL "ON")
    message(FATAL_ERROR "TETRAD_CUDA=ON needs nvcc (CUDA 13): put it on the PATH or set CUDACXX")
  else()
    message(STATUS "There is a GPU but no nvcc: building for the CPU alone")
  endif()
endif()
if(NOT TETRAD_WITH_CUDA)
  return()
endif()

if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES 90a)
endif()
set(TETRAD_WARPGROUPS OFF)  # 90a, unlike 90, has the products of whole warpgroups
if("90a" IN_LIST CMAKE_CUDA_ARCHITECTURES OR "90a-real" IN_LIST CMAKE_CUDA_ARCHITECTURES)
  set(TETRAD_WARPGROUPS ON)
endif()
enable_language(CUDA)
find_package(CUDAToolkit REQUIRED)
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
