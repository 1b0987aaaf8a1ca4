// SPDX-License-Identifier: Apache-2.0
#include "tetrad/backend/cpu/measure.h"

#include <cmath>
#include <vector>

#include "tetrad/backend/cpu/block_grid.h"
#include "tetrad/backend/cpu/decode.h"
#include "tetrad/backend/cpu/tile.h"

namespace tetrad::cpu {
namespace {

/// The decoded values of a tile, wherever its lanes lie in the matrix.
class DecodedTile {
 public:
  DecodedTile(const QuantizedTensor& tensor, const Tile& tile, const LaneStep& step) {
    const std::int64_t rows = step.rows > 0 ? tile.lanes : 1;
    const std::int64_t cols = (step.rows > 0 ? 0 : (tile.lanes - 1) * step.cols) + tile.last_inside;
    const bool by_rows = tensor.order == CodeOrder::row_major;
    const std::int64_t row_stride = by_rows ? cols : 1;
    const std::int64_t col_stride = by_rows ? 1 : rows;
    decode(tensor, {tile.row, rows, tile.col, cols}, DecodeTo::value, value_, by_rows ? cols : rows);
    lane_stride_ = step.rows > 0 ? row_stride : step.cols * col_stride;
    element_stride_ = col_stride;
  }

  /// Element i of a lane's run, which is inside the matrix.
  float operator()(int i, int lane) const { return value_[i * element_stride_ + lane * lane_stride_]; }

 private:
  std::int64_t lane_stride_ = 0, element_stride_ = 0;
  float value_[kLanes * kMaxRun];
};

/// Sums in every lane, so that their order does not depend on the instruction set.
struct LaneSums {
  double signal[kLanes] = {};
  double noise[kLanes] = {};
  double max_error[kLanes] = {};
  std::int64_t flushed[kLanes] = {};
  std::int64_t measured = 0;

  void add(const Tile& tile, const DecodedTile& decoded, const LaneStep& step) {
    for (int first = 0; first < tile.length; first += kChunk) {
      const int lanes = tile.lanes_with(first, step);
      measured += lanes * kChunk;
      for (int i = first; i < first + kChunk; ++i) {
        alignas(64) float value[kLanes] = {};  // outside the matrix both are zero
        for (int lane = 0; lane < lanes; ++lane) value[lane] = decoded(i, lane);
        add(tile.value[i], value);
      }
    }
  }

  void add(const float (&exact)[kLanes], const float (&value)[kLanes]) {
#pragma omp simd
    for (int lane = 0; lane < kLanes; ++lane) {
      const auto x = static_cast<double>(exact[lane]);
      const double error = std::abs(x - static_cast<double>(value[lane]));
      signal[lane] += x * x;
      noise[lane] += error * error;
      max_error[lane] = error > max_error[lane] ? error : max_error[lane];
      flushed[lane] += value[lane] == 0.0f && exact[lane] != 0.0f ? 1 : 0;
    }
  }

  QuantStats stats() const {
    QuantStats result;
    result.measured = measured;
    for (int lane = 0; lane < kLanes; ++lane) {
      result.signal += signal[lane];
      result.noise += noise[lane];
      result.max_error = max_error[lane] > result.max_error ? max_error[lane] : result.max_error;
      result.flushed += flushed[lane];
    }
    return result;
  }
};

}  // namespace

QuantStats measure(Threads& threads, const MatrixView& x, const QuantizedTensor& tensor,
                   Telemetry telemetry) {
  const BlockGrid grid(x, tensor.spec.block);
  const TileReader reader(x, tensor.spec, grid.block_rows(), grid.block_cols());
  std::vector<QuantStats> parts(static_cast<std::size_t>(reader.units()));
  threads.parallel_for(reader.units(), [&](std::int64_t unit) {
    LaneSums sums;
    reader.for_each_tile(
        unit,
        [&](const Tile& tile, std::int64_t) {
          sums.add(tile, DecodedTile(tensor, tile, reader.step()), reader.step());
        },
        telemetry == Telemetry::full ? 1 : kSampleEvery);
    parts[static_cast<std::size_t>(unit)] = sums.stats();
  });
  QuantStats stats;
  for (const QuantStats& part : parts) stats.merge(part);
  return stats;
}

}  // namespace tetrad::cpu
