// SPDX-License-Identifier: Apache-2.0
#pragma once
// The warpgroup products of compute capability 9.0 (built for 90a), of 64 rows by four warps together: right
// operands come from shared memory once for all of them. Elsewhere these functions must not be reached.
//
// Matrices in shared memory have rows of 128 bytes with their 16-byte chunks exchanged as in
// tile.cuh, from a multiple of 1024 bytes on; wider ones are panels of such rows.

#include <cstdint>

#include "tetrad/backend/cuda/attention/mma.cuh"

namespace tetrad::cuda {

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/// What tells the tensor cores where a matrix begins. `panel`: bytes from 64 columns to the next 64, where
/// the rows are the depth of the product. Eight rows have 1024 bytes.
__device__ inline std::uint64_t describe(unsigned address, unsigned panel) {
  constexpr std::uint64_t kExchanged128 = std::uint64_t{1} << 62;
  constexpr std::uint64_t kEightRows = std::uint64_t{1024 / 16} << 32;
  return kExchanged128 | kEightRows | static_cast<std::uint64_t>(panel / 16) << 16 | (address & 0x3FFFF) / 16;
}

/// Copies to shared memory that are complete become visible to the tensor cores; a barrier has to follow.
__device__ inline void publish_copies() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

/// Before the first product that uses registers which were written since.
__device__ inline void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
/// The products since the last call are one batch.
__device__ inline void end_batch() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
/// Until all batches but the last kLater are complete.
template <int kLater>
__device__ inline void wait_for_batches() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kLater) : "memory");
}

// sums [64, n] (+)= left [64, 16] times right, whose rows are the columns of the product: n rows of 16
// elements in multiply_rows_16(); or whose rows are its depth: 16 rows of n in multiply_add_columns_16().

__device__ inline void multiply_rows_16(float (&sums)[8][4], std::uint64_t left, std::uint64_t right,
                                        int add) {
  asm volatile(
      "{\n.reg .pred add;\nsetp.ne.b32 add, %34, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
      "%32, %33, add, 1, 1, 0, 0;\n}\n"
      : "+f"(sums[0][0]), "+f"(sums[0][1]), "+f"(sums[0][2]), "+f"(sums[0][3]), "+f"(sums[1][0]),
        "+f"(sums[1][1]), "+f"(sums[1][2]), "+f"(sums[1][3]), "+f"(sums[2][0]), "+f"(sums[2][1]),
        "+f"(sums[2][2]), "+f"(sums[2][3]), "+f"(sums[3][0]), "+f"(sums[3][1]), "+f"(sums[3][2]),
        "+f"(sums[3][3]), "+f"(sums[4][0]), "+f"(sums[4][1]), "+f"(sums[4][2]), "+f"(sums[4][3]),
        "+f"(sums[5][0]), "+f"(sums[5][1]), "+f"(sums[5][2]), "+f"(sums[5][3]), "+f"(sums[6][0]),
        "+f"(sums[6][1]), "+f"(sums[6][2]), "+f"(sums[6][3]), "+f"(sums[7][0]), "+f"(sums[7][1]),
        "+f"(sums[7][2]), "+f"(sums[7][3])
      : "l"(left), "l"(right), "r"(add));
}

__device__ inline void multiply_rows_16(float (&sums)[16][4], std::uint64_t left, std::uint64_t right,
                                        int add) {
  asm volatile(
      "{\n.reg .pred add;\nsetp.ne.b32 add, %66, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
      "%64, %65, add, 1, 1, 0, 0;\n}\n"
      : "+f"(sums[0][0]), "+f"(sums[0][1]), "+f"(sums[0][2]), "+f"(sums[0][3]), "+f"(sums[1][0]),
        "+f"(sums[1][1]), "+f"(sums[1][2]), "+f"(sums[1][3]), "+f"(sums[2][0]), "+f"(sums[2][1]),
        "+f"(sums[2][2]), "+f"(sums[2][3]), "+f"(sums[3][0]), "+f"(sums[3][1]), "+f"(sums[3][2]),
        "+f"(sums[3][3]), "+f"(sums[4][0]), "+f"(sums[4][1]), "+f"(sums[4][2]), "+f"(sums[4][3]),
        "+f"(sums[5][0]), "+f"(sums[5][1]), "+f"(sums[5][2]), "+f"(sums[5][3]), "+f"(sums[6][0]),
        "+f"(sums[6][1]), "+f"(sums[6][2]), "+f"(sums[6][3]), "+f"(sums[7][0]), "+f"(sums[7][1]),
        "+f"(sums[7][2]), "+f"(sums[7][3]), "+f"(sums[8][0]), "+f"(sums[8][1]), "+f"(sums[8][2]),
        "+f"(sums[8][3]), "+f"(sums[9][0]), "+f"(sums[9][1]), "+f"(sums[9][2]), "+f"(sums[9][3]),
        "+f"(sums[10][0]), "+f"(sums[10][1]), "+f"(sums[10][2]), "+f"(sums[10][3]), "+f"(sums[11][0]),
        "+f"(sums[11][1]), "+f"(sums[11][2]), "+f"(sums[11][3]), "+f"(sums[12][0]), "+f"(sums[12][1]),
        "+f"(sums[12][2]), "+f"(sums[12][3]), "+f"(sums[13][0]), "+f"(sums[13][1]), "+f"(sums[13][2]),
        "+f"(sums[13][3]), "+f"(sums[14][0]), "+f"(sums[14][1]), "+f"(sums[14][2]), "+f"(sums[14][3]),
        "+f"(sums[15][0]), "+f"(sums[15][1]), "+f"(sums[15][2]), "+f"(sums[15][3])
      : "l"(left), "l"(right), "r"(add));
}

__device__ inline void multiply_add_columns_16(float (&sums)[8][4], const Fragment& left,
                                               std::uint64_t right) {
  asm volatile(
      "{\n.reg .pred add;\nsetp.ne.b32 add, %37, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
      "{%32, %33, %34, %35}, %36, add, 1, 1, 1;\n}\n"
      : "+f"(sums[0][0]), "+f"(sums[0][1]), "+f"(sums[0][2]), "+f"(sums[0][3]), "+f"(sums[1][0]),
        "+f"(sums[1][1]), "+f"(sums[1][2]), "+f"(sums[1][3]), "+f"(sums[2][0]), "+f"(sums[2][1]),
        "+f"(sums[2][2]), "+f"(sums[2][3]), "+f"(sums[3][0]), "+f"(sums[3][1]), "+f"(sums[3][2]),
        "+f"(sums[3][3]), "+f"(sums[4][0]), "+f"(sums[4][1]), "+f"(sums[4][2]), "+f"(sums[4][3]),
        "+f"(sums[5][0]), "+f"(sums[5][1]), "+f"(sums[5][2]), "+f"(sums[5][3]), "+f"(sums[6][0]),
        "+f"(sums[6][1]), "+f"(sums[6][2]), "+f"(sums[6][3]), "+f"(sums[7][0]), "+f"(sums[7][1]),
        "+f"(sums[7][2]), "+f"(sums[7][3])
      : "r"(left.pair[0]), "r"(left.pair[1]), "r"(left.pair[2]), "r"(left.pair[3]), "l"(right), "r"(1));
}

__device__ inline void multiply_add_columns_16(float (&sums)[16][4], const Fragment& left,
                                               std::uint64_t right) {
  asm volatile(
      "{\n.reg .pred add;\nsetp.ne.b32 add, %69, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
      "{%64, %65, %66, %67}, %68, add, 1, 1, 1;\n}\n"
      : "+f"(sums[0][0]), "+f"(sums[0][1]), "+f"(sums[0][2]), "+f"(sums[0][3]), "+f"(sums[1][0]),
        "+f"(sums[1][1]), "+f"(sums[1][2]), "+f"(sums[1][3]), "+f"(sums[2][0]), "+f"(sums[2][1]),
        "+f"(sums[2][2]), "+f"(sums[2][3]), "+f"(sums[3][0]), "+f"(sums[3][1]), "+f"(sums[3][2]),
        "+f"(sums[3][3]), "+f"(sums[4][0]), "+f"(sums[4][1]), "+f"(sums[4][2]), "+f"(sums[4][3]),
        "+f"(sums[5][0]), "+f"(sums[5][1]), "+f"(sums[5][2]), "+f"(sums[5][3]), "+f"(sums[6][0]),
        "+f"(sums[6][1]), "+f"(sums[6][2]), "+f"(sums[6][3]), "+f"(sums[7][0]), "+f"(sums[7][1]),
        "+f"(sums[7][2]), "+f"(sums[7][3]), "+f"(sums[8][0]), "+f"(sums[8][1]), "+f"(sums[8][2]),
        "+f"(sums[8][3]), "+f"(sums[9][0]), "+f"(sums[9][1]), "+f"(sums[9][2]), "+f"(sums[9][3]),
        "+f"(sums[10][0]), "+f"(sums[10][1]), "+f"(sums[10][2]), "+f"(sums[10][3]), "+f"(sums[11][0]),
        "+f"(sums[11][1]), "+f"(sums[11][2]), "+f"(sums[11][3]), "+f"(sums[12][0]), "+f"(sums[12][1]),
        "+f"(sums[12][2]), "+f"(sums[12][3]), "+f"(sums[13][0]), "+f"(sums[13][1]), "+f"(sums[13][2]),
        "+f"(sums[13][3]), "+f"(sums[14][0]), "+f"(sums[14][1]), "+f"(sums[14][2]), "+f"(sums[14][3]),
        "+f"(sums[15][0]), "+f"(sums[15][1]), "+f"(sums[15][2]), "+f"(sums[15][3])
      : "r"(left.pair[0]), "r"(left.pair[1]), "r"(left.pair[2]), "r"(left.pair[3]), "l"(right), "r"(1));
}

#else

__device__ inline std::uint64_t describe(unsigned, unsigned) { return 0; }
__device__ inline void publish_copies() {}
__device__ inline void begin_products() {}
__device__ inline void end_batch() {}
template <int kLater>
__device__ inline void wait_for_batches() {}
template <int kN>
__device__ inline void multiply_rows_16(float (&)[kN][4], std::uint64_t, std::uint64_t, int) {
  __trap();
}
template <int kN>
__device__ inline void multiply_add_columns_16(float (&)[kN][4], const Fragment&, std::uint64_t) {
  __trap();
}

#endif

// The compiler does not know when a product reads and writes its registers. An empty instruction that seems
// to change them keeps what comes before begin() before it, and what comes after wait() after it.
template <int kM, int kN>
__device__ inline void touch(float (&values)[kM][kN][4]) {
#pragma unroll
  for (int m = 0; m < kM; ++m)
#pragma unroll
    for (int n = 0; n < kN; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) asm volatile("" : "+f"(values[m][n][e])::"memory");
}
template <int kM, int kK>
__device__ inline void touch(Fragment (&fragments)[kM][kK]) {
#pragma unroll
  for (int m = 0; m < kM; ++m)
#pragma unroll
    for (int k = 0; k < kK; ++k)
#pragma unroll
      for (int i = 0; i < 4; ++i) asm volatile("" : "+r"(fragments[m][k].pair[i])::"memory");
}

}  // namespace tetrad::cuda
