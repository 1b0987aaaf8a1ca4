// SPDX-License-Identifier: Apache-2.0
#pragma once
// Fragments of attention's operands, on the instructions of common/tensor_core.cuh.
//
// Lane l of a warp has g = l / 4 and t = l % 4. Of a 16 x 8 result it holds row g, columns 2t and 2t + 1,
// then the same columns of row g + 8.

#include "tetrad/backend/cuda/common/tensor_core.cuh"

namespace tetrad::cuda {

/// What a lane holds of a 16 x 16 left operand, or of two 16 x 8 right operands: pairs of BF16.
struct Fragment {
  unsigned pair[4];
};

/// The block's dynamic shared memory. Tiles in it are aligned to their rows, which have at most 256 bytes.
__device__ inline unsigned char* shared_memory() {
  extern __shared__ __align__(1024) unsigned char shared_bytes[];
  return shared_bytes;
}

/// Four 8 x 8 matrices, row l % 8 of matrix l / 8 at lane l's address.
__device__ inline Fragment load_matrices(unsigned address) {
  Fragment f;
  load_matrices(f.pair, address);
  return f;
}
__device__ inline Fragment load_transposed(unsigned address) {
  Fragment f;
  load_transposed(f.pair, address);
  return f;
}

/// sum [16, 8] += left [16, 16] times right [16, 8].
__device__ inline void multiply_add(float (&sum)[4], const Fragment& left, unsigned right_0,
                                    unsigned right_1) {
  multiply_add(sum, left.pair, right_0, right_1);
}

}  // namespace tetrad::cuda
