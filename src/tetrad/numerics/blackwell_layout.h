// SPDX-License-Identifier: Apache-2.0
#pragma once
// Where Blackwell's matrix library wants the block scales of a [rows, columns] scale matrix: tiles of 128 x 4
// bytes, rows padded to 128 and scale columns to 4 with zero bytes.

#include <cstdint>

#include "tetrad/numerics/host_device.h"

namespace tetrad::blackwell {

inline constexpr std::int64_t kTileRows = 128;
inline constexpr std::int64_t kTileColumns = 4;
inline constexpr std::int64_t kTileBytes = kTileRows * kTileColumns;

TETRAD_HD constexpr std::int64_t tiles(std::int64_t extent, std::int64_t tile) {
  return (extent + tile - 1) / tile;
}

TETRAD_HD constexpr std::int64_t scale_bytes(std::int64_t rows, std::int64_t columns) {
  return tiles(rows, kTileRows) * tiles(columns, kTileColumns) * kTileBytes;
}

TETRAD_HD constexpr std::int64_t scale_offset(std::int64_t row, std::int64_t column, std::int64_t columns) {
  const std::int64_t tile = (row / kTileRows) * tiles(columns, kTileColumns) + column / kTileColumns;
  return tile * kTileBytes + (row % 32) * 16 + ((row % kTileRows) / 32) * 4 + column % kTileColumns;
}

}  // namespace tetrad::blackwell
