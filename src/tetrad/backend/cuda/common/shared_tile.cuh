// SPDX-License-Identifier: Apache-2.0
#pragma once
// Matrices of BF16 in shared memory, for tensor_core.cuh. The same vector of 8 elements of 8 neighbouring
// rows has to lie in different banks: rows of multiples of 64 have their vectors swapped among themselves by
// the row's number; others, multiples of 16, are a vector longer.

#include "tetrad/backend/cuda/common/element.cuh"
#include "tetrad/backend/cuda/common/tensor_core.cuh"

namespace tetrad::cuda {

/// [any, kCols], kCols a multiple of 16.
template <int kCols>
struct SharedTile {
  Bf16* data;
  int lane;  //!< the thread's in its warp

  static constexpr bool kSwaps = kCols % 64 == 0;
  static constexpr int kStride = kSwaps ? kCols : kCols + 8;
  static_assert(kCols % 16 == 0);

  static constexpr int size(int rows) { return rows * kStride; }

  /// The address of vector `vector` (8 columns) of row `row`.
  __device__ Bf16* at(int row, int vector) const {
    return data + row * kStride + (kSwaps ? vector ^ (row & 7) : vector) * 8;
  }
  /// The address of two neighbours; `col` is even.
  __device__ std::uint32_t& pair(int row, int col) const {
    return *reinterpret_cast<std::uint32_t*>(at(row, col / 8) + col % 8);
  }

  /// Copies kRows rows of kCols elements from `from`; of these `there` exist, the others are zeros.
  template <int kThreads, int kRows>
  __device__ void copy_rows(const Bf16* from, std::int64_t stride, int there) const {
    constexpr int kVectors = kCols / 8;
    // Rows at a time; a multiple of 8 where vectors are swapped, so that they stay.
    constexpr int kStep = kSwaps ? kThreads / kVectors / 8 * 8 : kThreads / kVectors;
    if (kThreads > kStep * kVectors && threadIdx.x >= kStep * kVectors) return;
    const int first = static_cast<int>(threadIdx.x) / kVectors;
    const int vector = static_cast<int>(threadIdx.x) % kVectors;
    const Bf16* source = from + first * stride + vector * 8;
    Bf16* target = at(first, vector);
#pragma unroll 1  // addresses that are computed ahead for every step cost too many registers
    for (int row = first; row < kRows; row += kStep) {
      copy_async(target, row < there ? source : from, row < there);
      source += kStep * stride;
      target += kStep * kStride;
    }
  }

  // Operands. First operands are 16 x 16, at (row, col); second ones come in pairs that share a load. Rows
  // are multiples of 8 and columns of what a load covers, so that a column's number only flips bits of an
  // address.

  /// First operand: rows of the matrix are rows of the operand.
  __device__ void first(std::uint32_t (&out)[4], int row, int col) const {
    load_matrices(out, address(row, lane % 16, col, lane / 16));
  }
  /// First operand: columns of the matrix are rows of the operand. (row, col) are the matrix's.
  __device__ void first_transposed(std::uint32_t (&out)[4], int row, int col) const {
    load_transposed(out, address(row, lane / 16 * 8 + lane % 8, col, lane / 8 % 2));
  }
  /// Second operands whose columns are rows of the matrix: 8 rows from `row`, and the 16 columns from `col`
  /// (out[0], out[1]) and from col + 16 (out[2], out[3]).
  __device__ void second(std::uint32_t (&out)[4], int row, int col) const {
    load_matrices(out, address(row, lane % 8, col, lane / 8));
  }
  /// The same for 16 rows, the first 8 (out[0], out[1]) and the others (out[2], out[3]), and 16 columns.
  __device__ void second_square(std::uint32_t (&out)[4], int row, int col) const {
    load_matrices(out, address(row, lane / 16 * 8 + lane % 8, col, lane / 8 % 2));
  }
  /// Second operands whose columns are columns of the matrix: 16 rows from `row`, and the 8 columns from
  /// `col` (out[0], out[1]) and from col + 8 (out[2], out[3]).
  __device__ void second_transposed(std::uint32_t (&out)[4], int row, int col) const {
    load_transposed(out, address(row, lane % 16, col, lane / 16));
  }

 private:
  /// at(row + lane_row, col / 8 + lane_vector).
  __device__ const Bf16* address(int row, int lane_row, int col, int lane_vector) const {
    const Bf16* first = data + row * kStride + lane_row * kStride;
    return kSwaps ? first + (((lane_vector ^ (lane_row & 7)) * 8) ^ col) : first + lane_vector * 8 + col;
  }
};

}  // namespace tetrad::cuda
