# SPDX-License-Identifier: Apache-2.0
# ARM64 Linux from an x86-64 Debian or Ubuntu. The C and C++ libraries are the cross compiler's; the others lie in an ARM64 system
# given by -DTETRAD_ARM64_ROOT=..., with which programs run under qemu-user. scripts/check-arm64 sets all of it up.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES TETRAD_ARM64_ROOT)
set(CMAKE_FIND_ROOT_PATH ${TETRAD_ARM64_ROOT})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
foreach(kind LIBRARY INCLUDE PACKAGE)
  set(CMAKE_FIND_ROOT_PATH_MODE_${kind} ONLY)
endforeach()
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64-static -L ${TETRAD_ARM64_ROOT})
