// SPDX-License-Identifier: Apache-2.0
#pragma once
// The innermost product of BF16 matrices, on the processor's BF16 products: AVX512-BF16, or those of ARMv8.6.
//
// Both add two products to an f32 sum, s = fma(a[2p+1], b[2p+1], s), then s = fma(a[2p], b[2p], s), each
// rounded to nearest even: vdpbf16ps in one instruction, BFMLALT and BFMLALB in two. Products of two BF16
// values are exact, so these are the roundings of any f32 summation. vdpbf16ps counts subnormals as zero,
// whatever MXCSR says: operands and sums below 2^-126 in magnitude; docs/numerics.md says what that means.
// Infinities and NaN propagate.

#include <cstdint>

namespace tetrad::cpu {

// Operands are packed as strips of kStrip rows, [pairs, kStrip]: a 32-bit word holds elements 2p (lower half)
// and 2p + 1 of one row.
inline constexpr std::int64_t kStrip = 16;

/// Whether this variant has the kernel. The processor may still lack the instructions.
#if defined(__AVX512F__) || defined(__aarch64__)
inline constexpr bool kHasBf16Kernel = true;
#else
inline constexpr bool kHasBf16Kernel = false;
#endif

/// A block of the result that stays in registers, [kRows, kStrips * kStripB].
struct KernelBf16 {
  using Word = std::uint32_t;
  static constexpr std::int64_t kWordsPerPair = 1;
#if defined(__aarch64__)
  static constexpr std::int64_t kRows = 4;  //!< a quarter of a strip of a
  static constexpr std::int64_t kStrips = 1;
#else
  static constexpr std::int64_t kRows = 8;  //!< half a strip of a
  static constexpr std::int64_t kStrips = 3;
#endif
  static constexpr std::int64_t kStripA = kStrip;
  static constexpr std::int64_t kStripB = kStrip;
  static constexpr std::int64_t kCachedDepth = 512;

  struct Block {
    const std::uint32_t* a;  //!< the first of kRows words in each line of a strip
    const std::uint32_t* b;  //!< the first of `strips` strips
    std::int64_t b_stride;   //!< words from one strip of b to the next
    std::int64_t strips;     //!< 1 to kStrips
    std::int64_t pairs;      //!< half the depth
  };

  /// sums[kRows, kStrips * kStripB] = a . b^T in the columns of the strips; or the sums go on from what they
  /// are.
  static void multiply(const Block& block, bool go_on, float* sums);
};

}  // namespace tetrad::cpu
