// SPDX-License-Identifier: Apache-2.0
#pragma once
// The innermost product of BF16 matrices, on the processor's BF16 dot products (AVX512-BF16).
//
// vdpbf16ps adds two products to an f32 sum, s = fma(a[2p+1], b[2p+1], s), then s = fma(a[2p], b[2p], s),
// each rounded to nearest even. Products of two BF16 values are exact, so these are the roundings of any f32
// summation. Unlike f32 arithmetic elsewhere it counts subnormals as zero, whatever MXCSR says: operands and
// sums below 2^-126 in magnitude. docs/numerics.md says what that means. Infinities and NaN propagate.

#include <cstdint>

namespace tetrad::cpu {

// Operands are packed as strips of kStrip rows, [pairs, kStrip]: a 32-bit word holds elements 2p (lower half)
// and 2p + 1 of one row.
inline constexpr std::int64_t kStrip = 16;

// A block of the result that stays in registers.
inline constexpr std::int64_t kBlockRows = 8;    //!< half a strip of a
inline constexpr std::int64_t kBlockStrips = 3;  //!< of b
inline constexpr std::int64_t kBlockCols = kBlockStrips * kStrip;
inline constexpr std::int64_t kBlockSize = kBlockRows * kBlockCols;

/// Whether this build has the kernel.
bool has_bf16_kernel();

/// What multiply_bf16() reads.
struct Bf16Block {
  const std::uint32_t* a;  //!< the first of kBlockRows words in each line of a strip
  const std::uint32_t* b;  //!< the first of `strips` strips
  std::int64_t b_stride;   //!< words from one strip of b to the next
  std::int64_t strips;     //!< 1 to kBlockStrips
  std::int64_t pairs;      //!< half the depth
};

/// sums[kBlockRows, kBlockCols] = a . b^T in the columns of the strips; or += (the sum of this block is
/// rounded on its own, then added).
void multiply_bf16(const Bf16Block& block, bool add, float* sums);

/// Sixteen columns of sixteen rows of E2M1 codes: bytes[p] holds columns 2p (lower nibble) and 2p + 1 of each
/// row; scales are the rows'. Writes eight lines of a strip, each element code x scale, which must be exact.
void decode_e2m1_tile(const std::uint8_t (&bytes)[kStrip / 2][kStrip], const float (&scales)[kStrip],
                      std::uint32_t* out);

}  // namespace tetrad::cpu
