// SPDX-License-Identifier: Apache-2.0
#pragma once
// Words of 32 bits in functions that the host compiles too.

#include <cstdint>

#include "tetrad/numerics/host_device.h"

// For loops over registers in functions that the host compiles too.
#if defined(__CUDA_ARCH__)
#define TETRAD_UNROLL_ON_DEVICE _Pragma("unroll")
#else
#define TETRAD_UNROLL_ON_DEVICE
#endif

namespace tetrad::cuda {

struct alignas(8) TwoWords {
  std::uint32_t word[2];
};
struct alignas(16) FourWords {
  std::uint32_t word[4];
};

/// Keeps the compiler from computing a value again in each branch that uses it.
TETRAD_HD inline std::uint32_t in_register(std::uint32_t value) {
#if defined(__CUDA_ARCH__)
  asm volatile("" : "+r"(value));
#endif
  return value;
}

/// Byte i of the result is byte (selector nibble i) of the eight in (low, high).
TETRAD_HD inline std::uint32_t byte_perm(std::uint32_t low, std::uint32_t high, std::uint32_t selector) {
#if defined(__CUDA_ARCH__)
  return __byte_perm(low, high, selector);
#else
  const std::uint64_t bytes = static_cast<std::uint64_t>(high) << 32 | low;
  std::uint32_t result = 0;
  for (int i = 0; i < 4; ++i)
    result |= static_cast<std::uint32_t>(bytes >> (8 * (selector >> (4 * i) & 7u)) & 0xFFu) << (8 * i);
  return result;
#endif
}

}  // namespace tetrad::cuda
