# SPDX-License-Identifier: Apache-2.0
# ARM64 Linux from an x86-64 Debian or Ubuntu. Libraries are those of the foreign architecture (libfmt-dev:arm64 and so on), or
# of a root given by -DTETRAD_ARM64_ROOT=...; programs run under qemu-user. scripts/check-arm64 sets all of it up.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES TETRAD_ARM64_ROOT)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64-static)
if(TETRAD_ARM64_ROOT)
  set(CMAKE_SYSROOT ${TETRAD_ARM64_ROOT})
  set(CMAKE_FIND_ROOT_PATH ${TETRAD_ARM64_ROOT})
  list(APPEND CMAKE_CROSSCOMPILING_EMULATOR -L ${TETRAD_ARM64_ROOT})
endif()
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
