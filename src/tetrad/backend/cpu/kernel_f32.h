// SPDX-License-Identifier: Apache-2.0
#pragma once
// The innermost product of f32 matrices, on fused multiply-adds.
//
// It adds two products at a time in the order of the BF16 kernel, s = fma(a[2p+1], b[2p+1], s), then
// s = fma(a[2p], b[2p], s), so that BF16 values give the same bits in either kernel and on every processor.
// Subnormals are kept.

#include <cstdint>

#include "tetrad/backend/cpu/simd.h"

namespace tetrad::cpu {

/// A block of the result that stays in registers, [kRows, kStrips * kStripB]. Operands are packed as strips
/// of so many rows, [depth, rows]; the depth is even.
struct KernelF32 {
  using Word = float;
  static constexpr std::int64_t kWordsPerPair = 2;
#if defined(__AVX512F__) || defined(__aarch64__)
  static constexpr std::int64_t kRows = 8;  // 32 registers
#else
  static constexpr std::int64_t kRows = 4;  // 16
#endif
  static constexpr std::int64_t kStrips = 3;
  static constexpr std::int64_t kStripA = kRows;
  static constexpr std::int64_t kStripB = kNativeLanes;
  /// Depth over which the strips of b stay in the first-level cache.
  static constexpr std::int64_t kCachedDepth = 256;

  struct Block {
    const float* a;         //!< a strip
    const float* b;         //!< the first of `strips` strips
    std::int64_t b_stride;  //!< words from one strip of b to the next
    std::int64_t strips;    //!< 1 to kStrips
    std::int64_t pairs;     //!< half the depth
  };

  /// sums[kRows, kStrips * kStripB] = a . b^T in the columns of the strips; or the sums go on from what they
  /// are.
  static void multiply(const Block& block, bool go_on, float* sums);
};

}  // namespace tetrad::cpu
