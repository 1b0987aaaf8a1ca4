// SPDX-License-Identifier: Apache-2.0
#pragma once
// Products of tiles, by single warps (compute capability 8.0 and later) or by warpgroups (9.0). Either way a
// warp's result has the rows 16 kM w … of a block whose warps are w = 0, 1, …, and lanes hold the same of it.

#include "tetrad/backend/cuda/attention/tile.cuh"
#include "tetrad/backend/cuda/attention/wgmma.cuh"

namespace tetrad::cuda {

template <int kFragments>
struct WarpEngine {
  static constexpr int kM = kFragments;  //!< fragments of 16 rows: each load of a right operand serves all
  static constexpr int kRows = 16 * kM;  //!< that are computed together, or skipped
  static constexpr int kGroup = kWarp;   //!< threads that do so

  // What warpgroups need around their products, see below.
  __device__ static void publish() {}
  template <typename... Registers>
  __device__ static void begin(Registers&...) {}
  __device__ static void end_batch() {}
  template <int kLater, typename... Sums>
  __device__ static void wait(Sums&...) {}

  /// sums [16 kM, 8 kN] = rows from `left_row` of one tile times rows from `right_row` of another.
  template <typename Left, typename Right, int kN>
  __device__ static void multiply_rows(float (&sums)[kM][kN][4], unsigned left, int left_row, unsigned right,
                                       int right_row) {
    const int lane = lane_index();
    const unsigned left_place = left + Left::place(lane % 16, lane / 16);
    const unsigned right_place = right + Right::place(lane % 8 + lane / 16 * 8, lane / 8 % 2);
#pragma unroll
    for (int m = 0; m < kM; ++m)
#pragma unroll
      for (int n = 0; n < kN; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) sums[m][n][e] = 0;
#pragma unroll
    for (int pair = 0; pair < Left::kDim / 16; ++pair) {
      Fragment a[kM];
#pragma unroll
      for (int m = 0; m < kM; ++m) a[m] = load_matrices(Left::move(left_place, left_row + 16 * m, pair));
#pragma unroll
      for (int n = 0; n < kN; n += 2) {
        const Fragment b = load_matrices(Right::move(right_place, right_row + 8 * n, pair));
#pragma unroll
        for (int m = 0; m < kM; ++m) {
          multiply_add(sums[m][n], a[m], b.pair[0], b.pair[1]);
          multiply_add(sums[m][n + 1], a[m], b.pair[2], b.pair[3]);
        }
      }
    }
  }

  /// sums [16 kM, dimension] += a [16 kM, 16 kK] times the 16 kK rows from `row` of a tile.
  template <typename Right, int kK>
  __device__ static void multiply_add_columns(float (&sums)[kM][Right::kChunks][4],
                                              const Fragment (&a)[kM][kK], unsigned right, int row) {
    const int lane = lane_index();
    const unsigned place = right + Right::place(lane % 16, lane / 16);
#pragma unroll
    for (int k = 0; k < kK; ++k)
#pragma unroll
      for (int pair = 0; pair < Right::kDim / 16; ++pair) {
        const Fragment b = load_transposed(Right::move(place, row + 16 * k, pair));
#pragma unroll
        for (int m = 0; m < kM; ++m) {
          multiply_add(sums[m][2 * pair], a[m][k], b.pair[0], b.pair[1]);
          multiply_add(sums[m][2 * pair + 1], a[m][k], b.pair[2], b.pair[3]);
        }
      }
  }
};

struct WarpgroupEngine {
  static constexpr int kM = 1;
  static constexpr int kRows = 64;
  static constexpr int kGroup = 4 * kWarp;

  /// Between the end of copies and the barrier.
  __device__ static void publish() { publish_copies(); }
  /// Before products: of all registers that go into them and were written since.
  template <typename... Registers>
  __device__ static void begin(Registers&... registers) {
    (touch(registers), ...);
    begin_products();
  }
  /// Products have only been begun: the ones since the last call are a batch to wait for.
  __device__ static void end_batch() { cuda::end_batch(); }
  /// Until all batches but the last kLater are complete, which have these sums.
  template <int kLater, typename... Sums>
  __device__ static void wait(Sums&... sums) {
    wait_for_batches<kLater>();
    (touch(sums), ...);
  }

  template <typename Left, typename Right, int kN>
  __device__ static void multiply_rows(float (&sums)[1][kN][4], unsigned left, int left_row, unsigned right,
                                       int right_row) {
#pragma unroll
    for (int pair = 0; pair < Left::kDim / 16; ++pair)
      multiply_rows_16(sums[0], describe(Left::move(left, left_row, pair), 16),
                       describe(Right::move(right, right_row, pair), 16), pair > 0);
  }

  template <typename Right, int kK>
  __device__ static void multiply_add_columns(float (&sums)[1][Right::kChunks][4], const Fragment (&a)[1][kK],
                                              unsigned right, int row) {
#pragma unroll
    for (int k = 0; k < kK; ++k)
      multiply_add_columns_16(sums[0], a[0][k], describe(Right::move(right, row + 16 * k, 0), Right::kPanel));
  }
};

/// Where the documents of one sequence begin; without documents, it and its uses vanish.
template <bool kDocuments>
struct RowDocuments {
  const std::int32_t* starts;
  int sequence;

  __device__ RowDocuments(const std::int32_t* all_starts, std::int64_t batch, int of_sequence)
      : starts(kDocuments ? all_starts + batch * of_sequence : nullptr), sequence(of_sequence) {}

  /// The first key that a query sees; queries after the end of the sequence count as the last.
  __device__ int start(int query) const {
    return kDocuments ? starts[query < sequence ? query : sequence - 1] : 0;
  }
  /// For a lane's rows of a warp, whose first is at `query`.
  template <int kM>
  __device__ void load(int query, int (&out)[2 * kM]) const {
#pragma unroll
    for (int i = 0; i < 2 * kM; ++i) out[i] = start(query + 8 * i + lane_index() / 4);
  }
};

/// The first row of the thread's group.
template <typename Engine>
__device__ inline int group_row() {
  return static_cast<int>(threadIdx.x) / Engine::kGroup * Engine::kRows;
}
/// The first row of the thread's warp.
template <typename Engine>
__device__ inline int warp_row() {
  return warp_index() * 16 * Engine::kM;
}

}  // namespace tetrad::cuda
