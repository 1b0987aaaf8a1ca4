// SPDX-License-Identifier: Apache-2.0
#pragma once
// Matrix products of a warp, of BF16 and of E4M3, their operands' way through shared memory, and the cut of a
// 16 x 8 result among the lanes: lane l has rows l / 4 and l / 4 + 8, columns 2 (l % 4) and the next.

#include <cstdint>

#include "tetrad/numerics/bf16.h"

namespace tetrad::cuda {

/// Two BF16 values in one register, the first in the lower half.
__device__ inline std::uint32_t pack_bf16(float first, float second) {
  std::uint32_t packed;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(second), "f"(first));
  return packed;
}
__device__ inline float first_of(std::uint32_t packed) { return __uint_as_float(packed << 16); }
__device__ inline float second_of(std::uint32_t packed) { return __uint_as_float(packed & 0xFFFF0000u); }

/// x, of which the compiler knows nothing: so that it computes addresses in a loop where they are used, and
/// does not keep dozens of them in registers.
__device__ inline int hidden(int x) {
  asm volatile("" : "+r"(x));
  return x;
}

/// 2^x, to 2 ulp; 0 where that is subnormal.
__device__ inline float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// c += a . b for a 16 x 16, b 16 x 8.
__device__ inline void multiply_add(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                    std::uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/// The same for a 16 x 32, b 32 x 8, four E4M3 codes in a register; from compute capability 8.9 on.
__device__ inline void multiply_add_e4m3(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                         std::uint32_t b1) {
#if __CUDA_ARCH__ >= 890
  asm("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
  __trap();
#endif
}

/// What instructions on shared memory take for a pointer.
__device__ inline std::uint32_t shared_address(const void* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

/// Four 8 x 8 matrices; lane l gives the address of row l % 8 of matrix l / 8. Lane l gets elements
/// 2 (l % 4) and the next of row l / 4 or, transposed, of column l / 4.
__device__ inline void load_matrices(std::uint32_t (&out)[4], std::uint32_t row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(row)
               : "memory");
}
__device__ inline void load_transposed(std::uint32_t (&out)[4], std::uint32_t row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(row)
               : "memory");
}
__device__ inline void load_matrices(std::uint32_t (&out)[4], const Bf16* row) {
  load_matrices(out, shared_address(row));
}
__device__ inline void load_transposed(std::uint32_t (&out)[4], const Bf16* row) {
  load_transposed(out, shared_address(row));
}

/// kBytes (4 or 16) to shared memory, in the background; zeros, and nothing is read, where not `is_there`.
template <int kBytes>
__device__ inline void copy_async(std::uint32_t to, const void* from, bool is_there) {
  const int count = is_there ? kBytes : 0;
  if constexpr (kBytes == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(count) : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(count) : "memory");
}
__device__ inline void copy_async(void* to, const void* from, bool is_there) {
  copy_async<16>(shared_address(to), from, is_there);
}
/// Ends a batch of copies.
__device__ inline void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
/// Until all batches but the last kPending are there, as this thread sees it.
template <int kPending>
__device__ inline void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

/// Until all are there.
__device__ inline void wait_for_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

}  // namespace tetrad::cuda
