// SPDX-License-Identifier: Apache-2.0
#include "tetrad/backend/cuda/gemm/transposed_codes.h"

#include "tetrad/backend/cuda/common/launch.cuh"
#include "tetrad/backend/cuda/common/transposed_tile.cuh"

namespace tetrad::cuda {
namespace {

/// `in` as bytes [rows, cols] -> out [cols, rows].
template <bool kPackedRows>
__global__ void __launch_bounds__(kTileThreads)
    transpose_kernel(const std::uint8_t* in, std::int64_t rows, std::int64_t cols, std::uint8_t* out) {
  __shared__ TransposedTile tile;
  const int thread = static_cast<int>(threadIdx.x);
  const std::int64_t row = std::int64_t{blockIdx.y} * kTile;
  const std::int64_t col = std::int64_t{blockIdx.x} * kTile;
  if constexpr (kPackedRows)
    transpose_square_of_packed_rows(in, rows, cols, row, col, thread, tile);
  else
    transpose_square_of_bytes(in, rows, cols, row, col, thread, tile);
  __syncthreads();
  tile.store(thread, row, col, rows, cols, out);
}

template <bool kPackedRows>
void transpose(Device& device, const std::uint8_t* in, std::int64_t rows, std::int64_t cols,
               std::uint8_t* out) {
  const dim3 grid(static_cast<unsigned>(ceil_div(cols, std::int64_t{kTile})),
                  static_cast<unsigned>(ceil_div(rows, std::int64_t{kTile})), 1);
  transpose_kernel<kPackedRows><<<grid, kTileThreads, 0, device.stream()>>>(in, rows, cols, out);
  check_launch();
}

}  // namespace

void transpose_bytes(Device& device, const std::uint8_t* in, std::int64_t rows, std::int64_t cols,
                     std::uint8_t* out) {
  transpose<false>(device, in, rows, cols, out);
}

void transpose_packed_codes(Device& device, const std::uint8_t* in, std::int64_t rows, std::int64_t cols,
                            std::uint8_t* out) {
  transpose<true>(device, in, rows / 2, cols, out);
}

}  // namespace tetrad::cuda
