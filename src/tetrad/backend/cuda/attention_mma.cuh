#pragma once
// The instructions of attention on tensor cores (compute capability 8.0 and later): asynchronous copies to
// shared memory, loads of fragments, 16 x 8 x 16 products of BF16 summed in f32.
//
// Lane l of a warp has g = l / 4 and t = l % 4. Of a 16 x 8 result it holds row g, columns 2t and 2t + 1,
// then the same columns of row g + 8.

#include <cstdint>

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
__device__ inline unsigned shared_address(const void* pointer) {
  return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}

/// kBytes (4 or 16) to shared memory; zeros, and nothing is read, where there is nothing to copy.
template <int kBytes>
__device__ inline void copy_async(unsigned to, const void* from, bool exists) {
  const int count = exists ? kBytes : 0;
  if constexpr (kBytes == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(count) : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(count) : "memory");
}
/// Waits for this thread's copies; a barrier makes those of the other threads visible.
__device__ inline void wait_for_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

/// Four 8 x 8 matrices, row l % 8 of matrix l / 8 at lane l's address.
__device__ inline Fragment load_matrices(unsigned address) {
  Fragment f;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(f.pair[0]), "=r"(f.pair[1]), "=r"(f.pair[2]), "=r"(f.pair[3])
               : "r"(address)
               : "memory");
  return f;
}
__device__ inline Fragment load_transposed(unsigned address) {
  Fragment f;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(f.pair[0]), "=r"(f.pair[1]), "=r"(f.pair[2]), "=r"(f.pair[3])
               : "r"(address)
               : "memory");
  return f;
}

/// sum [16, 8] += left [16, 16] times right [16, 8].
__device__ inline void multiply_add(float (&sum)[4], const Fragment& left, unsigned right_0,
                                    unsigned right_1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(left.pair[0]), "r"(left.pair[1]), "r"(left.pair[2]), "r"(left.pair[3]), "r"(right_0),
        "r"(right_1));
}

/// Two floats to BF16, the first in the lower half.
__device__ inline unsigned to_bf16_pair(float first, float second) {
  unsigned pair = 0;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
  return pair;
}

/// 2^x to 22 bits, one instruction.
__device__ inline float fast_exp2(float x) {
  float y = 0;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

}  // namespace tetrad::cuda
