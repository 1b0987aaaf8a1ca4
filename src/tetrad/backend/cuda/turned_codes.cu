// SPDX-License-Identifier: Apache-2.0
#include "tetrad/backend/cuda/turned_codes.h"

#include "tetrad/backend/cuda/launch.cuh"
#include "tetrad/backend/cuda/turned_tile.cuh"

namespace tetrad::cuda {
namespace {

/// `in` as bytes [rows, cols] -> out [cols, rows].
template <bool kPackedRows>
__global__ void __launch_bounds__(kTileThreads)
    turn_kernel(const std::uint8_t* in, std::int64_t rows, std::int64_t cols, std::uint8_t* out) {
  __shared__ TurnedTile tile;
  const int thread = static_cast<int>(threadIdx.x);
  const std::int64_t row = std::int64_t{blockIdx.y} * kTile;
  const std::int64_t col = std::int64_t{blockIdx.x} * kTile;
  if constexpr (kPackedRows)
    turn_square_of_packed_rows(in, rows, cols, row, col, thread, tile);
  else
    turn_square_of_bytes(in, rows, cols, row, col, thread, tile);
  __syncthreads();
  tile.store(thread, row, col, rows, cols, out);
}

template <bool kPackedRows>
void turn(Device& device, const std::uint8_t* in, std::int64_t rows, std::int64_t cols, std::uint8_t* out) {
  const dim3 grid(static_cast<unsigned>(ceil_div(cols, std::int64_t{kTile})),
                  static_cast<unsigned>(ceil_div(rows, std::int64_t{kTile})), 1);
  turn_kernel<kPackedRows><<<grid, kTileThreads, 0, device.stream()>>>(in, rows, cols, out);
  check_launch();
}

}  // namespace

void turn_bytes(Device& device, const std::uint8_t* in, std::int64_t rows, std::int64_t cols,
                std::uint8_t* out) {
  turn<false>(device, in, rows, cols, out);
}

void turn_packed_codes(Device& device, const std::uint8_t* in, std::int64_t rows, std::int64_t cols,
                       std::uint8_t* out) {
  turn<true>(device, in, rows / 2, cols, out);
}

}  // namespace tetrad::cuda
